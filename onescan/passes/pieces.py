"""pieces: a part of what is put together, as what is put together of parts.

In goes a loop in whose body ``jnp.diff(x, prepend=0)`` reads all but the first and all
but the last of ``concatenate([0, x])``; out comes one in which that is x and
``concatenate([0, x[:-1]])``.  The whole would lie in memory, because two read it; now
each is read where its pieces stand.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from onescan.loop import Loop
from onescan.passes.borders import LARGE, OTHERS
from onescan.passes.inline import expand
from onescan.passes.links import Uses
from onescan.passes.split import Split, parts_of, slice_of, unchanged
from onescan.primitives import record_of

#: slices that the parts of one whole are read by, at most
MOST = 3


def pieces(loop: Loop) -> Split | None:
    """Put together what is read only."""
    jaxpr = loop.body.jaxpr
    if any(record_of(eqn).kind in OTHERS for eqn in jaxpr.eqns):
        return None
    wholes = _wholes(loop)
    if not wholes:
        return None
    env: dict[Any, Any] = {}
    eqns: list[JaxprEqn] = []
    read = lambda v: v if isinstance(v, Literal) else env.get(v, v)
    for eqn in jaxpr.eqns:
        whole = wholes.get(eqn.invars[0]) if eqn.primitive.name == "slice" else None
        if whole is None:
            eqns.append(eqn.replace(invars=list(map(read, eqn.invars))))
            continue
        parts = list(map(read, whole.invars))
        cut = lambda *parts, eqn=eqn, whole=whole: _cut(eqn, whole, parts)
        (env[eqn.outvars[0]],) = expand(cut, parts, eqn, eqns)
    outs = list(map(read, jaxpr.outvars))
    live = slice_of(eqns, outs, jaxpr.invars)
    body = Jaxpr([], jaxpr.invars, outs, live, debug_info=jaxpr.debug_info)
    changed = loop.replace(body=ClosedJaxpr(body, []))
    return Split("pieces", changed, unchanged, lambda args, results: results)


def _wholes(loop: Loop) -> dict[Any, JaxprEqn]:
    """What is put together of large arrays, and read by a few slices only."""
    uses = Uses.of(parts_of(loop))
    found: dict[Any, JaxprEqn] = {}
    for out, eqn in uses.makers.items():
        size = prod(getattr(out.aval, "shape", ()))
        readers = uses.readers.get(out, [])
        large = eqn.primitive.name == "concatenate" and size >= LARGE
        few = 1 < len(readers) <= MOST and not uses.leaving[out]
        if large and few and all(map(_is_plain, readers)):
            found[out] = eqn
    return found


def _is_plain(eqn: JaxprEqn) -> bool:
    strides = eqn.params.get("strides")
    return eqn.primitive.name == "slice" and (strides is None or set(strides) == {1})


def _cut(eqn: JaxprEqn, whole: JaxprEqn, parts: Any) -> Any:
    """A slice of a whole that is these parts, one behind the other."""
    axis = whole.params["dimension"]
    first, last = list(eqn.params["start_indices"]), list(eqn.params["limit_indices"])
    ends = accumulate(part.shape[axis] for part in parts)
    found = []
    for part, end in zip(parts, ends, strict=True):
        begin = end - part.shape[axis]
        low, high = max(first[axis], begin), min(last[axis], end)
        if low < high:
            start = [*first[:axis], low - begin, *first[axis + 1 :]]
            stop = [*last[:axis], high - begin, *last[axis + 1 :]]
            found.append(lax.slice(part, start, stop))
    return lax.concatenate(found, axis) if len(found) > 1 else found[0]
