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
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import (
    Array,
    Groups,
    Index,
    Vec,
    add,
    as_value,
    is_scalar,
    multiple_of,
    scale,
)
from onescan.emit.constants import positions
from onescan.emit.emitter import Emitter
from onescan.emit.interleave import joined
from onescan.emit.joining import together
from onescan.emit.strides import CLOSE, backwards, every, only_vector
from onescan.loop import Atom, Equation
from onescan.primitives.axes import reshape_groups

#: numbers from which copies of a value are written down
WRITTEN = 64
#: numbers of rows of which a vector has several, put together by shuffles
SHORT_ROWS = (2, 4, 8)


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


def reshape(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    shape = e.plan.local_shape(out)
    groups = reshape_groups(x.shape, shape)
    if _lies_across_rows(e, eqn, x, groups):
        x = e.copied(x)
    if x.memory is not None and (there := x.memory.reshaped(x.shape, shape, groups)):
        return [e.lazy(out, lambda index: there.load(e.b, index), [x])]

    def at(index: tuple[Index, ...]) -> ty.Value:
        place: dict[int, Index] = {}
        wide, turns = [i for i in index if not is_scalar(i)], None
        for left, right in groups:
            if len(left) == len(right) == 1:
                place[left[0]] = index[right[0]]
                continue
            flat: Index = 0
            for j in right:
                flat = add(e.b, scale(e.b, flat, shape[j]), index[j])
            sizes = [x.shape[i] for i in left]
            if len(wide) == 1 and (rows := _whole_rows(flat, sizes)) is not None:
                turns = left, sizes, rows
                continue
            for i, part in zip(left, unravel(e, flat, sizes), strict=True):
                place[i] = part
        if turns is not None:
            return _in_turns(e, x, place, *turns)
        return x.at(tuple(place[i] for i in range(len(x.shape))))

    return [e.lazy(out, at, [x])]


def _whole_rows(flat: Index, sizes: list[int]) -> Vec | None:
    """A vector of positions, if it is that of whole short rows of these sizes."""
    if not isinstance(flat, Vec) or len(sizes) < 2 or sizes[-1] not in SHORT_ROWS:
        return None
    row = sizes[-1]
    whole = flat.width % row == 0 and multiple_of(flat.base) % row == 0
    return flat if whole else None


def _in_turns(
    e: Emitter,
    x: Array,
    place: dict[int, Index],
    left: list[int],
    sizes: list[int],
    flat: Vec,
) -> ty.Value:
    """A number of each row in turn, from a vector for each place in the rows."""
    b, row = e.b, sizes[-1]
    count, base = flat.width // row, flat.base
    if not isinstance(base, int):
        base = b.udiv(base, ir.Constant(ty.I64, row))
    else:
        base //= row
    rows = Vec(base, count) if count > 1 else base
    found = dict(place)
    found.update(zip(left[:-1], unravel(e, rows, sizes[:-1]), strict=True))
    values = []
    for k in range(row):
        found[left[-1]] = k
        value = x.at(tuple(found[i] for i in range(len(x.shape))))
        values.append(ty.splat(b, value, count) if count > 1 else value)
    if count == 1:
        return together(b, values)
    side_by_side = joined(b, values)
    mask = [k * count + i for i in range(count) for k in range(row)]
    return b.shuffle_vector(side_by_side, side_by_side, positions(*mask))


def _lies_across_rows(e: Emitter, eqn: Equation, x: Array, groups: Groups) -> bool:
    """Whether vectors of a reshaped value would begin and end anywhere in its rows."""
    (out,), shape = eqn.outvars, e.plan.local_shape(eqn.outvars[0])
    small = prod(shape) < WRITTEN or e.plan.inner_width < 2 or e.plan.is_laned(out)
    if small or e.pulls(out, e.lazy(out, x.at, [x])):
        return False
    if x.memory is not None and x.memory.reshaped(x.shape, shape, groups):
        return False
    along = e.plan.minor(shape)
    rows = next(left for left, right in groups if along in right)
    rows = [i for i in rows if x.shape[i] > 1]
    return len(rows) > 1 and x.shape[rows[-1]] >= e.plan.inner_width


def unravel(e: Emitter, flat: Index, sizes: list[int]) -> list[Index]:
    """A position in row-major order as one index component for each size."""
    parts: list[Index] = []
    for n in reversed(sizes[1:]):
        flat, part = _divmod(e, flat, n)
        parts.append(part)
    if sizes:
        parts.append(flat)
    return parts[::-1]


def _divmod(e: Emitter, flat: Index, n: int) -> tuple[Index, Index]:
    if n == 1:
        return flat, 0
    if isinstance(flat, int):
        return divmod(flat, n)
    if isinstance(flat, Vec) and isinstance(flat.base, int):
        row, place = divmod(flat.base, n)
        if place + flat.width <= n:
            return row, Vec(place, flat.width)
    value = as_value(e.b, flat)
    by = ty.constant(ty.I64, n, ty.width_of(value))
    return e.b.udiv(value, by), e.b.urem(value, by)


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


def tile(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """A value several times: written down where vectors would lie across its ends."""
    (x,), (out,) = [e.once(a) for a in operands], eqn.outvars
    shapes = eqn.invars[0].aval.shape, out.aval.shape
    again = [n for n, m in zip(*shapes, strict=True) if n != m]

    def at(index: tuple[Index, ...]) -> ty.Value:
        sizes = zip(index, x.shape, *shapes, strict=True)
        return x.at(
            tuple(i if m == m0 else _divmod(e, i, n)[1] for i, n, m0, m in sizes)
        )

    found = e.lazy(out, at, [x])
    few = prod(found.shape) < WRITTEN or e.pulls(out, found)
    lengthwise = not e.plan.is_laned(out) and shapes[0][-1:] != shapes[1][-1:]
    if few or not lengthwise or any(n % e.plan.inner_width == 0 for n in again):
        return [found]
    return [_written_again(e, out, x)]


def _written_again(e: Emitter, out: Atom, x: Array) -> Array:
    """Copies of a value side by side in memory."""
    target = e.fresh(out)
    memory = target.memory
    assert memory is not None
    sizes = zip(target.shape, x.shape, memory.strides, strict=True)
    copies = [(m // n, n * stride) for m, n, stride in sizes if m != n]
    view = replace(memory, strides=(*(s for _, s in copies), *memory.strides))
    shape = (*(count for count, _ in copies), *x.shape)
    lanes = (*(None for _ in copies), *target.lanes)
    visit = lambda at: view.store(e.b, at, x.at(at[len(copies) :]))
    e.nest(shape, lanes, visit, cost=x.cost)
    return target


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
