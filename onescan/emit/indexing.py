"""Slices, gathers and scatters at positions known only at run time.

Positions out of bounds behave as XLA defines them: a window is moved inside
(clip), or reads a fill value and writes nothing (fill or drop).  Every address
is computed from a clamped position, so no access leaves its array.  Updates are
written in place when nobody needs the old values.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onescan.emit import types as ty
from onescan.emit.arrays import Array, At, Index, Vec, add, spanning
from onescan.emit.comparisons import maximum, minimum
from onescan.emit.convert import rounded
from onescan.emit.emitter import CHEAP, Emitter
from onescan.emit.joining import together
from onescan.emit.math.features import AVX512, GPU, has
from onescan.emit.places import (
    asks,
    clamped,
    held,
    lasts,
    position_of,
    read_position,
    unheld,
)
from onescan.emit.reduce import KINDS, highest, lowest
from onescan.loop import Atom, Equation
from onescan.plan.plan import is_across

#: operations of a value that are written out for each lane that reads it elsewhere
SHORT = 4
#: updates, one by one, from which those outside are left out by a branch
MANY = 32


def _starts(
    e: Emitter, eqn: Equation, starts: list[Array], sizes: Any, position: Any
) -> list[Index]:
    shape = eqn.invars[0].aval.shape
    e.sync()
    return [
        clamped(e, position(e, start, ()), n - size)
        for start, n, size in zip(starts, shape, sizes, strict=True)
    ]


def _readable(e: Emitter, eqn: Equation, x: Array) -> Array:
    """The first operand, in memory unless a few elements of it are computed instead."""
    return x if e.pulls(eqn.invars[0], x) else e.materialise(x)


def dynamic_slice(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    x, *starts = operands
    (out,) = eqn.outvars
    x = _readable(e, eqn, x)
    begin = _starts(e, eqn, starts, eqn.params["slice_sizes"], read_position)

    def at(index: tuple[Index, ...]) -> ty.Value:
        return x.at(tuple(add(e.b, i, s) for i, s in zip(index, begin, strict=True)))

    return [e.lazy(out, at, [x], moving=True)]


def dynamic_update_slice(
    e: Emitter, eqn: Equation, operands: list[Array]
) -> list[Array]:
    x, update, *starts = operands
    begin = _starts(e, eqn, starts, eqn.invars[1].aval.shape, position_of)
    target, [update] = e.overwritable(eqn, x, update)
    memory = target.memory
    assert memory is not None

    def visit(index: tuple[Index, ...]) -> None:
        place = tuple(add(e.b, i, s) for i, s in zip(index, begin, strict=True))
        memory.store(e.b, place, update.at(index))

    e.nest(update.shape, target.lanes, visit)
    return [target]


def _clamped(e: Emitter, var: Atom, indices: Array, last: int) -> Array:
    """Indices held inside an axis."""
    dtype = indices.dtype
    first, end = (ty.literal(i, dtype) for i in (0, min(last, np.iinfo(dtype).max)))

    def at(index: tuple[Index, ...]) -> ty.Value:
        value, low, high = ty.match(e.b, indices.at(index), first, end)
        return minimum(e.b, dtype, maximum(e.b, dtype, value, low), high)

    return e.lazy(var, at, [indices], cost=2, pointwise=True)


def _spans_lanes(index: tuple[Index, ...]) -> bool:
    """Whether an index stands for consecutive positions."""
    return any(isinstance(i, Vec) for i in index)


def _lane_by_lane(b: ty.Builder, index: tuple[Index, ...], at: At) -> ty.Value:
    """The vector of an index, put together of numbers that were pulled one by one."""
    width = next(i.width for i in index if isinstance(i, Vec))
    values = []
    for lane in range(width):
        place = [add(b, i.base, lane) if isinstance(i, Vec) else i for i in index]
        values.append(at(tuple(place)))
    return together(b, values)


def gather(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    x, indices = _readable(e, eqn, operands[0]), operands[1]
    (out,) = eqn.outvars
    numbers = eqn.params["dimension_numbers"]
    shape, rank = eqn.invars[0].aval.shape, len(out.aval.shape)
    ready = e.ready.get(id(eqn))
    indices = ready.places if ready else indices
    one_by_one = x.memory is None or not (has(e.b, AVX512) or has(e.b, GPU))
    along = numbers.start_index_map
    last = lasts(eqn)
    clamps = one_by_one and not asks(eqn) and len(along) == 1 and indices.cost > CHEAP
    if clamps:  # in vectors, before they are taken apart
        indices = _clamped(e, eqn.invars[1], indices, last[0])
    is_held = clamps or ready is not None
    indices = e.once(indices) if x.memory is not None else e.materialise(indices)
    filler = ty.literal(_fill_value(eqn), x.dtype)
    hidden = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [i for i in range(len(shape)) if i not in hidden]
    batch_dims = [j for j in range(rank) if j not in numbers.offset_dims]

    def at(index: tuple[Index, ...]) -> ty.Value:
        batch = tuple(index[j] for j in batch_dims)
        if one_by_one and indices.memory is not None and _spans_lanes(batch):
            return _lane_by_lane(e.b, index, at)
        place: list[Index] = [0] * len(shape)
        for i, j in zip(window, numbers.offset_dims, strict=True):
            place[i] = index[j]
        for i, k in zip(
            numbers.operand_batching_dims,
            numbers.start_indices_batching_dims,
            strict=True,
        ):
            place[i] = batch[k]
        inside = None
        for k, i in enumerate(along):
            here, ok = _place(e, eqn, indices, (*batch, k), last[k], is_held)
            place[i] = add(e.b, place[i], here)
            inside = _both(e, inside, ok)
        if ready and ready.inside:
            inside = ready.inside.at(batch)
        value = x.at(tuple(place))
        if inside is None:
            return value
        inside, value, other = ty.match(e.b, inside, value, filler)
        return e.b.select(inside, value, other)

    found = e.lazy(out, at, [x, indices], cost=4)
    in_windows = rank - 1 in numbers.offset_dims  # along which vectors lie
    copied = has(e.b, AVX512) and not in_windows and _is_copied(e, out, x)
    if not copied and (x.memory is not None or x.cost <= SHORT or in_windows):
        return [found]
    target = e.fresh(out)  # by one copy of the code, not one for each lane
    e.put(target, found, vector=None)
    return [target]


def _is_copied(e: Emitter, out: Any, x: Array) -> bool:
    """Whether the next step has these numbers: they are copied, not computed with.

    One by one that takes a cycle for each, where a gather of 16 takes 20 on some
    processors and 50 on others.
    """
    carried = e.body is not None and out in e.body.homes
    many = prod(out.aval.shape) >= MANY and x.memory is not None
    return carried and many and e.plan.vector is None and not is_across(x.lanes)


def _place(
    e: Emitter,
    eqn: Equation,
    indices: Array,
    index: tuple[Index, ...],
    last: int,
    is_held: bool,
) -> tuple[Index, ty.Value | None]:
    """One number of a position, and whether it was inside, where that matters."""
    if not is_held:
        return held(e, indices, index, last, asks(eqn))
    if last <= 0:
        return 0, None
    return spanning(e.b, read_position(e, indices, index), 0, last), None


def _both(e: Emitter, x: ty.Value | None, y: ty.Value | None) -> ty.Value | None:
    if x is None or y is None:
        return y if x is None else x
    return e.b.and_(*ty.match(e.b, x, y))


def _fill_value(eqn: Equation) -> Any:
    value, dtype = eqn.params["fill_value"], np.dtype(eqn.invars[0].aval.dtype)
    if value is not None:
        return value
    if ty.is_float(dtype):
        return float("nan")
    if ty.is_bool(dtype):
        return True
    return lowest(dtype) if ty.is_signed(dtype) else highest(dtype)


SCATTERS = {
    "scatter": None,
    "scatter-add": KINDS["reduce_sum"][0],
    "scatter-sub": lambda b, dtype, x, y: (
        b.fsub(x, y) if ty.is_float(dtype) else b.sub(x, y)
    ),
    "scatter-mul": KINDS["reduce_prod"][0],
    "scatter-min": KINDS["reduce_min"][0],
    "scatter-max": KINDS["reduce_max"][0],
}


def scatter(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    x, indices, updates = operands
    numbers = eqn.params["dimension_numbers"]
    shape = eqn.invars[0].aval.shape
    sizes = eqn.invars[2].aval.shape
    combine = SCATTERS[eqn.primitive.name]
    last = lasts(eqn)
    hidden = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = [i for i in range(len(shape)) if i not in hidden]
    batch_dims = [j for j in range(len(sizes)) if j not in numbers.update_window_dims]
    target, [indices, updates] = e.overwritable(eqn, x, e.once(indices), updates)
    memory = target.memory
    assert memory is not None

    # two updates may meet in one element, so vectors lie along windows only
    inner = len(sizes) - 1
    vector = inner if inner in numbers.update_window_dims else None
    held_by_lanes = is_across((*target.lanes, *indices.lanes, *updates.lanes))
    alone = vector is None and not held_by_lanes and prod(sizes) >= MANY
    may_miss = asks(eqn) and len(last) > 0
    branches = e.branches_over_updates and may_miss and alone

    def visit(index: tuple[Index, ...]) -> None:
        batch = tuple(index[j] for j in batch_dims)
        place: list[Index] = [0] * len(shape)
        for i, j in zip(window, numbers.update_window_dims, strict=True):
            place[i] = index[j]
        for i, k in zip(
            numbers.operand_batching_dims,
            numbers.scatter_indices_batching_dims,
            strict=True,
        ):
            place[i] = batch[k]
        inside = None
        for k, i in enumerate(numbers.scatter_dims_to_operand_dims):
            find = unheld if branches else held
            here, ok = find(e, indices, (*batch, k), last[k], asks(eqn))
            place[i] = add(e.b, place[i], here)
            inside = _both(e, inside, ok)
        value = updates.at(index)
        where = tuple(place)
        if branches:
            with e.b.if_then(inside, likely=True), e.inside():
                update(where, value, None)
        else:
            update(where, value, inside)

    def update(
        where: tuple[Index, ...], value: ty.Value, inside: ty.Value | None
    ) -> None:
        if combine is not None or inside is not None:
            old, value = ty.match(e.b, memory.load(e.b, where), value)
            if combine is not None:
                value = rounded(
                    e.b, combine(e.b, target.dtype, old, value), target.dtype
                )
            if inside is not None:
                inside, value, old = ty.match(e.b, inside, value, old)
                value = e.b.select(inside, value, old)
        memory.store(e.b, where, value)

    apart = _apart(eqn, window)
    e.nest_in_order(updates.shape, updates.lanes, visit, target, vector, apart=apart)
    return [target]


def _apart(eqn: Equation, window: list[int]) -> frozenset[int]:
    """The dimensions of updates along which no two of them meet in one element."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.invars[2].aval.shape
    inside = numbers.update_window_dims
    several = prod(n for j, n in enumerate(sizes) if j not in inside) > 1
    if not several or eqn.params["unique_indices"]:
        return frozenset(range(len(sizes)))
    indexed = numbers.scatter_dims_to_operand_dims
    return frozenset(j for i, j in zip(window, inside, strict=True) if i not in indexed)


RULES = {
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    **dict.fromkeys(SCATTERS, scatter),
}
