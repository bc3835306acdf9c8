"""Primitives that only move elements: views where possible, else scratch.

Broadcasts, transposes, reshapes, slices and reversals rewrite the index and
cost nothing.  Concatenations and pads write their parts into scratch, so that no
element is chosen at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, add, as_value, scale
from onescan.emit.emitter import Emitter
from onescan.emit.reshapes import reshape, tile
from onescan.emit.strides import CLOSE, backwards, every, only_vector
from onescan.loop import Equation


def broadcast_in_dim(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (out,) = eqn.outvars
    x, shape = operands[0], eqn.invars[0].aval.shape
    dims = eqn.params["broadcast_dimensions"]
    if prod(shape) < prod(out.aval.shape):
        x = e.pulled_often(eqn.invars[0], x, out)
        x = x if e.pulls(eqn.invars[0], x) else e.once(x)

    def at(index: tuple[Index, ...]) -> ty.Value:
        where = zip(shape, dims, strict=True)
        return x.at(
            tuple(
                0 if n == 1 and out.aval.shape[d] != 1 else index[d] for n, d in where
            )
        )

    return [e.lazy(out, at, [x])]


def transpose(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    permutation = eqn.params["permutation"]

    def at(index: tuple[Index, ...]) -> ty.Value:
        place = dict(zip(permutation, index, strict=True))
        return x.at(tuple(place[i] for i in range(len(index))))

    found = e.lazy(out, at, [x])
    if x.memory is None:
        return [found]
    return [replace(found, apart=tuple(x.memory.strides[i] for i in permutation))]


def squeeze(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    rank = len(x.shape)
    gone = {d % rank for d in eqn.params["dimensions"]}

    def at(index: tuple[Index, ...]) -> ty.Value:
        rest = iter(index)
        return x.at(tuple(0 if i in gone else next(rest) for i in range(rank)))

    return [e.lazy(out, at, [x])]


def expand_dims(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    rank = len(out.aval.shape)
    new = {d % rank for d in eqn.params["dimensions"]}

    def at(index: tuple[Index, ...]) -> ty.Value:
        return x.at(tuple(part for i, part in enumerate(index) if i not in new))

    return [e.lazy(out, at, [x])]


def slice_(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    starts = [int(start) for start in eqn.params["start_indices"]]
    strides = [int(stride) for stride in eqn.params["strides"] or (1,) * len(starts)]

    def place_of(index: Sequence[Index]) -> list[Index]:
        return [
            add(e.b, scale(e.b, i, stride), start)
            for i, start, stride in zip(index, starts, strides, strict=True)
        ]

    def at(index: tuple[Index, ...]) -> ty.Value:
        along = only_vector(index)
        if along is None or not x.memory or not 1 < strides[along] <= CLOSE:
            return x.at(tuple(place_of(index)))
        row: Any = index[along]
        place = place_of([row.base if d == along else i for d, i in enumerate(index)])
        return every(e, x, place, along, strides[along], row.width)

    return [e.lazy(out, at, [x])]


def split(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), axis = operands, eqn.params["axis"]
    results, start = [], 0
    for out, size in zip(eqn.outvars, eqn.params["sizes"], strict=True):

        def at(index: tuple[Index, ...], start: int = start) -> ty.Value:
            place = list(index)
            place[axis] = add(e.b, place[axis], start)
            return x.at(tuple(place))

        results.append(e.lazy(out, at, [x]))
        start += int(size)
    return results


def unstack(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,) = operands
    axis = eqn.params["axis"] % len(x.shape)
    return [
        e.lazy(
            out,
            lambda index, k=k: x.at((*index[:axis], k, *index[axis:])),
            [x],
        )
        for k, out in enumerate(eqn.outvars)
    ]


def rev(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """A reversal; a vector along it is read forwards and turned around."""
    (x,), (out,) = operands, eqn.outvars
    dims = set(eqn.params["dimensions"])

    def mirrored(i: int, part: Index) -> Index:
        if i not in dims:
            return part
        if isinstance(part, int):
            return x.shape[i] - 1 - part
        value = as_value(e.b, part)
        last = ty.constant(ty.I64, x.shape[i] - 1, ty.width_of(value))
        return e.b.sub(last, value)

    def at(index: tuple[Index, ...]) -> ty.Value:
        along = only_vector(index)
        if along is not None and along in dims:
            others = [0 if i == along else part for i, part in enumerate(index)]
            place = [mirrored(i, part) for i, part in enumerate(others)]
            return backwards(e, x, place, along, index[along])  # type: ignore[arg-type]
        return x.at(tuple(mirrored(i, part) for i, part in enumerate(index)))

    return [e.lazy(out, at, [x])]


def concatenate(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (out,), axis = eqn.outvars, eqn.params["dimension"]
    target, start = e.fresh(out), 0
    for x in operands:
        _put_at(e, target, x, axis, start)
        start += x.shape[axis]
    return [target]


def _put_at(e: Emitter, target: Array, x: Array, axis: int, start: int) -> None:
    memory = target.memory
    assert memory is not None

    def visit(index: tuple[Index, ...]) -> None:
        place = list(index)
        place[axis] = add(e.b, place[axis], start)
        memory.store(e.b, tuple(place), x.at(index))

    e.nest(x.shape, target.lanes, visit)


def stack(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (out,) = eqn.outvars
    axis = eqn.params["axis"] % len(out.aval.shape)
    target = e.fresh(out)
    memory = target.memory
    assert memory is not None
    lanes = (*target.lanes[:axis], *target.lanes[axis + 1 :])
    for k, x in enumerate(operands):

        def visit(index: tuple[Index, ...], k: int = k, x: Array = x) -> None:
            memory.store(e.b, (*index[:axis], k, *index[axis:]), x.at(index))

        e.nest(x.shape, lanes, visit)
    return [target]


def pad(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x, filler), (out,) = operands, eqn.outvars
    config = [tuple(map(int, dim)) for dim in eqn.params["padding_config"]]
    target = e.fresh(out)
    memory = target.memory
    assert memory is not None
    e.nest(
        target.shape,
        target.lanes,
        lambda index: memory.store(e.b, index, filler.at(())),
    )

    # negative padding cuts: only the elements that land inside are visited
    firsts, counts = [], []
    for n, m, (low, _, inner) in zip(x.shape, target.shape, config, strict=True):
        inside = [i for i in range(n) if 0 <= low + i * (inner + 1) < m]
        firsts.append(inside[0] if inside else 0)
        counts.append(len(inside))

    def visit(index: tuple[Index, ...]) -> None:
        source = tuple(add(e.b, i, f) for i, f in zip(index, firsts, strict=True))
        place = tuple(
            add(e.b, scale(e.b, i, inner + 1), low)
            for i, (low, _, inner) in zip(source, config, strict=True)
        )
        memory.store(e.b, place, x.at(source))

    e.nest(tuple(counts), target.lanes, visit)
    return [target]


def iota(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (out,), along = eqn.outvars, eqn.params["dimension"]
    lane = e.plan.local_lanes(out)[along]

    def at(index: tuple[Index, ...]) -> ty.Value:
        place = add(e.b, index[along], e.bases[lane] if lane else 0)
        return _number(e, place, np.dtype(out.aval.dtype))

    return [e.lazy(out, at)]


def _number(e: Emitter, place: Index, dtype: np.dtype) -> ty.Value:
    value = as_value(e.b, place)
    kind = ty.with_width(ty.register_type(dtype), ty.width_of(value))
    if ty.is_float(dtype):
        return e.b.sitofp(value, kind)
    return value if kind == value.type else e.b.trunc(value, kind)


def iota_2x32_shape(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """Row-major positions as two 32-bit halves."""
    high, low = eqn.outvars
    shape = high.aval.shape
    lanes = e.plan.local_lanes(high)

    def flat(index: tuple[Index, ...]) -> ty.Value:
        place: Index = 0
        for part, n, lane in zip(index, shape, lanes, strict=True):
            part = add(e.b, part, e.bases[lane] if lane else 0)
            place = add(e.b, scale(e.b, place, n), part)
        return as_value(e.b, place)

    def at_low(index: tuple[Index, ...]) -> ty.Value:
        value = flat(index)
        return e.b.trunc(value, ty.with_width(ty.I32, ty.width_of(value)))

    def at_high(index: tuple[Index, ...]) -> ty.Value:
        value = flat(index)
        width = ty.width_of(value)
        shifted = e.b.lshr(value, ty.constant(ty.I64, 32, width))
        return e.b.trunc(shifted, ty.with_width(ty.I32, width))

    return [e.lazy(high, at_high), e.lazy(low, at_low)]


def empty(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """What is never read, as zeros: JAX fills the other branches of a gradient so."""
    (out,) = eqn.outvars
    dtype = np.dtype(out.aval.dtype)
    zero = ty.constant(ty.register_type(dtype), 0)
    return [e.lazy(out, lambda index: zero)]


def identity(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    return operands


RULES = {
    "broadcast_in_dim": broadcast_in_dim,
    "concatenate": concatenate,
    "empty": empty,
    "empty2": empty,
    "expand_dims": expand_dims,
    "iota": iota,
    "iota_2x32_shape": iota_2x32_shape,
    "pad": pad,
    "reshape": reshape,
    "rev": rev,
    "slice": slice_,
    "split": split,
    "squeeze": squeeze,
    "stack": stack,
    "tile": tile,
    "transpose": transpose,
    "unstack": unstack,
}
