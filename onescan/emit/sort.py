"""sort: a network of compare-and-exchange steps.

The same exchanges happen whatever the values are, so all lanes sort at once.  A short
network is written out, in registers; a longer one is a table of the places that are
exchanged, and a loop over it; and beyond that it is bitonic, by loops alone.
Batcher's odd-even merge network is not stable by itself; a position is carried
along and breaks ties, which makes it so, where equal elements can be told apart.  NaN
sorts last, and -0 with 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Vec, as_value
from onescan.emit.bitonic import Bitonic, Column, without
from onescan.emit.comparisons import compare
from onescan.emit.emitter import Emitter
from onescan.emit.reduce import highest
from onescan.loop import Equation
from onescan.plan.plan import Lane, is_across

#: rough operations of one exchange of one operand
EXCHANGE = 5
#: elements up to which a network is written down, and the same where vectors could lie
#: along them: a bitonic sort exchanges what a register holds all at once
LONGEST, LONGEST_ALONG = 64, 16


def exchanges(n: int) -> Iterator[tuple[int, int]]:
    """Pairs (low, high) of Batcher's odd-even merge sort for n elements."""
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                for i in range(min(k, n - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        yield i + j, i + j + k
            k //= 2
        p *= 2


def sort(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    axis, num_keys = eqn.params["dimension"], eqn.params["num_keys"]
    shape, lanes = operands[0].shape, e.plan.local_lanes(eqn.outvars[0])
    if shape[axis] > _longest(e, shape, lanes, axis) and 0 not in shape:
        return _by_loops(e, eqn, operands)
    targets = [e.fresh(out) for out in eqn.outvars]
    first = targets[0]
    if 0 in first.shape:
        return targets
    # without positions a network is minima and maxima, of which NVIDIA's assembler
    # makes code that loses numbers (8 int32 on an H200; the PTX is right)
    n, alike = first.shape[axis], _are_alike(operands) and e.plan.inner_width > 1
    network = list(exchanges(n))
    cost = len(network) * EXCHANGE * len(operands)
    if cost > e.unrolled_operations:
        _by_table(e, eqn, operands, targets, network)
        return targets
    others = tuple(s for i, s in enumerate(first.shape) if i != axis)
    lanes = tuple(l for i, l in enumerate(first.lanes) if i != axis)

    def visit(index: tuple[Index, ...]) -> None:
        place = lambda k: (*index[:axis], k, *index[axis:])
        rows = [[x.at(place(k)) for x in operands] for k in range(n)]
        width = max(ty.width_of(v) for row in rows for v in row)
        rows = [[ty.splat(e.b, v, width) for v in row] for row in rows]
        if not alike:  # equal ones stay in order
            for k, row in enumerate(rows):
                row.append(ty.constant(ty.I32, k, width))
        for low, high in exchanges(n):
            pair = rows[high], rows[low]
            swap = _before(e.b, operands[:num_keys], *pair, not alike)
            pairs = zip(rows[low], rows[high], strict=True)
            rows[low], rows[high] = map(
                list,
                zip(
                    *(
                        (e.b.select(swap, b, a), e.b.select(swap, a, b))
                        for a, b in pairs
                    ),
                    strict=True,
                ),
            )
        for k, row in enumerate(rows):
            for target, value in zip(targets, row, strict=False):
                assert target.memory is not None
                target.memory.store(e.b, place(k), value)

    e.nest(others, lanes, visit, _vector(e, first, axis), cost)
    return targets


def _longest(
    e: Emitter, shape: tuple[int, ...], lanes: tuple[Lane | None, ...], axis: int
) -> int:
    """Elements up to which a network is written down."""
    along = not is_across(lanes) and axis == e.plan.minor(shape)
    return LONGEST_ALONG if along and e.plan.inner_width > 1 else LONGEST


def _vector(e: Emitter, target: Array, axis: int) -> int | None:
    """Along which of the other dimensions vectors lie."""
    return None if axis == e.plan.minor(target.shape) else -1


def _by_table(
    e: Emitter,
    eqn: Equation,
    operands: list[Array],
    targets: list[Array],
    network: list[tuple[int, int]],
) -> None:
    """Sort in memory: each exchange reads two rows and writes them back."""
    axis, keys = eqn.params["dimension"], operands[: eqn.params["num_keys"]]
    first = targets[0]
    for target, x in zip(targets, operands, strict=True):
        e.put(target, x)
    rows: list[Any] = [target.memory for target in targets]
    alike = _are_alike(operands)
    if not alike:
        rows.append(e.scratch(first.shape, first.lanes, np.int32))
    table = e.constant_data(np.array(network, np.int64))

    def visit(index: tuple[Index, ...]) -> None:
        place = lambda k: (*index[:axis], k, *index[axis:])
        width = max(i.width if isinstance(i, Vec) else 0 for i in (*index, 0))
        if not alike:
            with e.loop(first.shape[axis]) as k:
                number = ty.splat(e.b, e.b.trunc(k, ty.I32), width)
                rows[-1].store(e.b, place(k), number)
        with e.loop(len(network)) as k:
            low, high = (place(table.load(e.b, (k, side))) for side in (0, 1))
            x, y = ([row.load(e.b, at) for row in rows] for at in (low, high))
            swap = _before(e.b, keys, y, x, not alike)
            for row, a, b in zip(rows, x, y, strict=True):
                row.store(e.b, low, e.b.select(swap, b, a))
                row.store(e.b, high, e.b.select(swap, a, b))

    others = tuple(s for i, s in enumerate(first.shape) if i != axis)
    lanes = tuple(l for i, l in enumerate(first.lanes) if i != axis)
    vector = _vector(e, first, axis)
    if prod(others) == 1:  # no two threads may exchange the same rows
        e.nest_in_order(others, lanes, visit, first, vector, e.unrolled_operations)
    else:
        e.nest(others, lanes, visit, vector, e.unrolled_operations)


def _by_loops(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    axis, num_keys = eqn.params["dimension"], eqn.params["num_keys"]
    shape, lanes = operands[0].shape, e.plan.local_lanes(eqn.outvars[0])
    n = shape[axis]

    def pulled(x: Array) -> Any:
        return lambda place: x.at((*place[:axis], place[-1], *place[axis:-1]))

    columns = [Column(x.dtype, pulled(x), last_of(x.dtype)) for x in operands]
    alike = _are_alike(operands)
    if not alike:
        columns.append(positions(e, n))
    before = lambda x, y: _before(e.b, operands[:num_keys], x, y, not alike)
    batch, others = without(shape, axis), without(lanes, axis)
    rows = Bitonic(e, batch, others, n, columns, before).rows
    return [
        e.stored(replace(row, strides=_moved(row.strides, axis)), shape, lanes)
        for row in rows[: len(operands)]
    ]


def _are_alike(operands: list[Array]) -> bool:
    """Whether equal elements cannot be told apart, so that their order is none."""
    return len(operands) == 1 and not ty.is_float(operands[0].dtype)


def _moved(strides: tuple[int, ...], axis: int) -> tuple[int, ...]:
    *others, last = strides
    return (*others[:axis], last, *others[axis:])


def positions(e: Emitter, n: int) -> Column:
    """Where each element stood."""

    def at(place: tuple[Index, ...]) -> ty.Value:
        return e.b.trunc(as_value(e.b, place[-1]), ty.I32)

    return Column(np.dtype(np.int32), at, np.int32(n))


def last_of(dtype: Any) -> Any:
    """A value of a type that sorts after all others, or with the last of them."""
    if ty.is_bool(dtype):
        return True
    return float("nan") if ty.is_float(dtype) else highest(dtype)


def _before(
    b: ty.Builder,
    keys: list[Array],
    x: list[ty.Value],
    y: list[ty.Value],
    stable: bool = True,
) -> ty.Value:
    """Whether row x comes before row y: by the keys, then by position."""
    if not stable:
        return compare(b, keys[0].dtype, "<", x[0], y[0])
    result = b.icmp_signed("<", x[-1], y[-1])
    for i in reversed(range(len(keys))):
        less, equal = _order(b, keys[i].dtype, x[i], y[i])
        result = b.or_(less, b.and_(equal, result))
    return result


def _order(
    b: ty.Builder, dtype: Any, x: ty.Value, y: ty.Value
) -> tuple[ty.Value, ty.Value]:
    less = compare(b, dtype, "<", x, y)
    equal = compare(b, dtype, "==", x, y)
    if ty.is_float(dtype):
        x_nan, y_nan = (b.fcmp_unordered("uno", v, v) for v in (x, y))
        less = b.or_(less, b.and_(y_nan, b.not_(x_nan)))
        equal = b.or_(equal, b.and_(x_nan, y_nan))
    return less, equal


RULES = {"sort": sort}
