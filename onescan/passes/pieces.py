"""pieces: a part of what is put together, as what is put together of parts.

In goes a loop in whose body ``jnp.diff(x, prepend=0)`` reads all but the first and all
but the last of ``concatenate([0, x])``; out comes one in which that is x and
``concatenate([0, x[:-1]])``.  The whole would lie in memory, because two read it; now
each is read where its pieces stand.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from math import prod
from typing import Any

from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from onescan.loop import Loop
from onescan.passes.inline import expand
from onescan.passes.split import Split, slice_of, unchanged
from onescan.primitives import record_of

#: numbers of an array that is large
LARGE = 1024
#: slices that the parts of one whole are read by, at most
MOST = 3
#: kinds of operations next to which nothing is read in pieces
OTHERS = ("product", "control", "matrix", "sort", "transform")


def pieces(loop: Loop) -> Split | None:
    """Put together what is read only."""
    jaxpr = loop.body.jaxpr
    if any(record_of(eqn).kind in OTHERS for eqn in jaxpr.eqns):
        return None
    wholes = _wholes(jaxpr)
    if not wholes:
        return None
    env: dict[Any, Any] = {}
    eqns: list[JaxprEqn] = []
    for eqn in jaxpr.eqns:
        read = [v if isinstance(v, Literal) else env.get(v, v) for v in eqn.invars]
        whole = wholes.get(eqn.invars[0]) if eqn.primitive.name == "slice" else None
        if whole is None:
            eqns.append(eqn.replace(invars=read))
            continue
        parts = [v if isinstance(v, Literal) else env.get(v, v) for v in whole.invars]
        cut = lambda *parts, eqn=eqn, whole=whole: _cut(eqn, whole, parts)
        (env[eqn.outvars[0]],) = expand(cut, parts, eqn, eqns)
    outs = [v if isinstance(v, Literal) else env.get(v, v) for v in jaxpr.outvars]
    live = slice_of(eqns, outs, jaxpr.invars)
    body = Jaxpr([], jaxpr.invars, outs, live, debug_info=jaxpr.debug_info)
    changed = loop.replace(body=ClosedJaxpr(body, []))
    return Split("pieces", changed, unchanged, lambda args, results: results)


def _wholes(jaxpr: Any) -> dict[Any, JaxprEqn]:
    """What is put together of large arrays, and read by a few slices only."""
    readers: dict[Any, list[JaxprEqn]] = defaultdict(list)
    for eqn in jaxpr.eqns:
        for v in eqn.invars:
            if not isinstance(v, Literal):
                readers[v].append(eqn)
    return {
        out: eqn
        for eqn in jaxpr.eqns
        for out in eqn.outvars
        if eqn.primitive.name == "concatenate"
        and prod(out.aval.shape) >= LARGE
        and not any(v is out for v in jaxpr.outvars)
        and 1 < len(readers[out]) <= MOST
        and all(_is_plain(reader) for reader in readers[out])
    }


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
