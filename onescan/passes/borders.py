"""borders: a box that is set at a fixed place of a fresh array, as pieces of an array.

In goes a loop; out comes one in which `x.at[1:-1, 1:-1].set(y)` and `x.at[0].set(y)`,
and the updates at fixed places that gradients of rolls and slices are made of, are
concatenations of what is around the box and the box, where x is large and is not
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
from onescan.primitives import is_refused, record_of

#: numbers of an array that is large
LARGE = 1024
#: kinds of operations next to which updates are better made where they lie
OTHERS = ("product", "control", "matrix", "sort", "transform")
#: where a box begins, and its size
Box = tuple[list[int], list[int]]


def borders(loop: Loop) -> Split | None:
    """Write boxes at fixed places as pieces."""
    jaxpr = loop.body.jaxpr
    if any(record_of(eqn).kind in OTHERS for eqn in jaxpr.eqns):
        return None
    made: dict[Any, JaxprEqn] = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    env: dict[Any, Any] = {}
    eqns: list[JaxprEqn] = []
    count = 0
    for eqn in jaxpr.eqns:
        inputs = [v if isinstance(v, Literal) else env.get(v, v) for v in eqn.invars]
        function = _boxed(eqn, made) or _read_box(eqn, made)
        if function is None:
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
    """What an update computes, if it sets one box at a fixed place inside."""
    where = {"scatter": _scattered, "dynamic_update_slice": _updated}
    if eqn.primitive.name not in where or is_refused(eqn):
        return None
    x = eqn.invars[0].aval
    updates = eqn.invars[2 if eqn.primitive.name == "scatter" else 1].aval
    covered = prod(updates.shape) * 2 >= prod(x.shape)
    if prod(x.shape) < LARGE or not (covered or eqn.invars[0] in made):
        return None
    if (box := where[eqn.primitive.name](eqn, made)) is None:
        return None
    start, size = box
    ends = [s + n for s, n in zip(start, size, strict=True)]
    if any(s < 0 or end > n for s, end, n in zip(start, ends, x.shape, strict=True)):
        return None

    def boxed(x: Any, *others: Any) -> Any:
        box = lax.reshape(others[eqn.primitive.name == "scatter"], size)
        for d in reversed(range(len(size))):
            behind = [0] * (len(size) - d - 1)
            parts = [
                # nothing is made of what has no elements: its axes would be no lanes
                box if low is None else lax.slice(x, [*start[:d], low, *behind], high)
                for low, high in (
                    (0, [*ends[:d], start[d], *x.shape[d + 1 :]]),
                    (None, ends),
                    (ends[d], [*ends[:d], *x.shape[d:]]),
                )
                if low is None or low < high[d]
            ]
            box = lax.concatenate(parts, d) if len(parts) > 1 else parts[0]
        return box

    return boxed


def _read_box(eqn: Any, made: dict[Any, JaxprEqn]) -> Callable[..., Any] | None:
    """What a gather computes, if it reads one box at a fixed place inside.

    The gradients of boxes that are set are such ones.
    """
    if eqn.primitive.name != "gather" or prod(eqn.outvars[0].aval.shape) * 2 < LARGE:
        return None
    numbers, size = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    shape = eqn.invars[0].aval.shape
    if numbers.operand_batching_dims or len(eqn.invars[1].aval.shape) != 1:
        return None
    places = _known(eqn.invars[1], made)
    if places is None:
        return None
    start = [0] * len(shape)
    for d, place in zip(numbers.start_index_map, places, strict=True):
        start[d] = int(place)
    ends = [s + n for s, n in zip(start, size, strict=True)]
    if any(s < 0 or end > n for s, end, n in zip(start, ends, shape, strict=True)):
        return None
    out = eqn.outvars[0].aval.shape
    return lambda x, _: lax.reshape(lax.slice(x, start, ends), out)


def _scattered(eqn: Any, made: dict[Any, JaxprEqn]) -> Box | None:
    """Where a scatter of one window begins, and how large that is."""
    x, indices, updates = (v.aval for v in eqn.invars)
    numbers = eqn.params["dimension_numbers"]
    if numbers.operand_batching_dims or len(indices.shape) != 1:
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
    return start, size


def _updated(eqn: Any, made: dict[Any, JaxprEqn]) -> Box | None:
    """The same of a slice that is updated."""
    x, updates, *places = eqn.invars
    if not all(isinstance(v, Literal) for v in places):
        return None
    sizes = zip(places, x.aval.shape, updates.aval.shape, strict=True)
    start = [min(max(int(v.val), 0), n - m) for v, n, m in sizes]
    return start, list(updates.aval.shape)


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
