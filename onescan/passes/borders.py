"""borders: a box that is set at a fixed place of a fresh array, as pieces of an array.

In goes a loop; out comes one in which `x.at[1:-1, 1:-1].set(y)` and `x.at[0].set(y)`
are concatenations of what is around the box and the box, where x is large and is not
kept anyway: most of it is set, or it was computed in this step.  Kernels read pieces
where they stand, and write each element once.  A part of a carry that is set where it
lies stays what it is: the rest of it need not be touched at all.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from onescan.loop import Loop
from onescan.passes.inline import expand
from onescan.passes.split import Split, unchanged

#: numbers of an array that is large
LARGE = 1024


def borders(loop: Loop) -> Split | None:
    """Write boxes at fixed places as pieces."""
    jaxpr = loop.body.jaxpr
    made: dict[Any, JaxprEqn] = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    env: dict[Any, Any] = {}
    eqns: list[JaxprEqn] = []
    count = 0
    for eqn in jaxpr.eqns:
        inputs = [v if isinstance(v, Literal) else env.get(v, v) for v in eqn.invars]
        if (function := _boxed(eqn, made)) is None:
            eqns.append(eqn.replace(invars=inputs))
            continue
        env[eqn.outvars[0]] = expand(function, inputs, eqn, eqns)[0]
        count += 1
    if not count:
        return None
    outs = [v if isinstance(v, Literal) else env.get(v, v) for v in jaxpr.outvars]
    body = Jaxpr([], jaxpr.invars, outs, eqns, debug_info=jaxpr.debug_info)
    smaller = loop.replace(body=ClosedJaxpr(body, []))
    return Split("borders", smaller, unchanged, lambda args, results: results)


def _boxed(eqn: Any, made: dict[Any, JaxprEqn]) -> Callable[..., Any] | None:
    """What a scatter computes, if it sets one box at a fixed place inside."""
    if eqn.primitive.name != "scatter":
        return None
    x, indices, updates = (v.aval for v in eqn.invars)
    numbers = eqn.params["dimension_numbers"]
    if numbers.operand_batching_dims or len(indices.shape) != 1:
        return None
    fresh = made.get(eqn.invars[0])
    covered = prod(updates.shape) * 2 >= prod(x.shape)
    if prod(x.shape) < LARGE or (fresh is None and not covered):
        return None
    places = _known(eqn.invars[1], made)
    if places is None:
        return None
    start, size = [0] * len(x.shape), [1] * len(x.shape)
    window = [d for d in range(len(size)) if d not in numbers.inserted_window_dims]
    for d, k in zip(window, numbers.update_window_dims, strict=True):
        size[d] = updates.shape[k]
    for d, place in zip(numbers.scatter_dims_to_operand_dims, places, strict=True):
        start[d] = int(place)
    ends = [s + n for s, n in zip(start, size, strict=True)]
    if any(s < 0 or end > n for s, end, n in zip(start, ends, x.shape, strict=True)):
        return None

    def boxed(x: Any, _: Any, box: Any) -> Any:
        box = lax.reshape(box, size)
        for d in reversed(range(len(size))):
            around = [
                lax.slice(x, [*start[:d], low, *[0] * (len(size) - d - 1)], high)
                for low, high in (
                    (0, [*ends[:d], start[d], *x.shape[d + 1 :]]),
                    (ends[d], [*ends[:d], *x.shape[d:]]),
                )
            ]
            before, after = around
            parts = [p for p in (before, box, after) if p.shape[d]]
            box = lax.concatenate(parts, d) if len(parts) > 1 else box
        return box

    return boxed


def _known(atom: Any, made: dict[Any, JaxprEqn]) -> np.ndarray | None:
    """The value of an array of a few numbers that are written in the program."""
    if isinstance(atom, Literal):
        return np.asarray(atom.val)
    eqn = made.get(atom)
    if eqn is None or prod(atom.aval.shape) > 8:
        return None
    parts = [_known(v, made) for v in eqn.invars]
    if any(part is None for part in parts):
        return None
    if eqn.primitive.name == "broadcast_in_dim":
        return np.broadcast_to(parts[0], atom.aval.shape)  # type: ignore[arg-type]
    if eqn.primitive.name == "concatenate" and len(atom.aval.shape) == 1:
        return np.concatenate(parts)  # type: ignore[arg-type]
    return None
