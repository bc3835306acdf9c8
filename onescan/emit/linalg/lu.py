"""lu: Gaussian elimination with partial pivoting, column by column.

The pivot of a column is its largest element, the first of several.  Lanes choose
different rows; there every row below is exchanged where a lane has chosen it.  A column
of zeros is left as it is, and has a zero on the diagonal of the upper factor.
"""

from __future__ import annotations

from typing import Any

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Vec, as_value
from onescan.emit.convert import like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg.matrix import (
    Batch,
    Elements,
    InMemory,
    InRegisters,
    Walk,
    after,
    chosen,
    magnitude,
    matrix_by_matrix,
    minus_product,
    reciprocal,
    times,
    width_at,
)


def lu(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    (x,) = operands
    factors, pivots, order = targets = [e.fresh(v) for v in eqn.outvars]
    rows, columns = factors.shape[-2:]
    if 0 in factors.shape:
        if columns == 0:
            _fill_order(e, order)
        return targets
    steps = min(rows, columns)
    operations = rows * columns * (steps / 3 + rows / 2) + 10 * steps
    walk = Walk(e, max(rows, columns), operations)
    memory: Any = factors.memory
    room: Any = None
    if walk.width > 1:
        shape = (rows, walk.padded(columns))
        room = e.scratch(shape, (None, None), factors.dtype)

    def visit(batch: Batch) -> None:
        if walk.unrolled:
            a: Elements = InRegisters()
            p: Elements = InRegisters()
        else:
            a = InMemory(e, memory, lambda i, j: (*batch, i, j))
            p = InMemory(e, order.memory, lambda i, j: (*batch, i))  # type: ignore[arg-type]
        if room is not None:
            a = InMemory(e, room, lambda i, j: (i, j))
        for i in walk.each(0, rows):
            p.put(i, 0, e.b.trunc(as_value(e.b, i), ty.I32))
            for j in walk.each(0, columns):
                a.put(i, j, x.at((*batch, i, j)))
        for k in walk.each(0, steps):
            pivot = _pivot_row(walk, a, k, rows, width_at(batch))
            pivots.memory.store(e.b, (*batch, k), e.b.trunc(pivot, _i32(pivot)))  # type: ignore[union-attr]
            _exchange(walk, a, k, pivot, rows, walk.spans(0, columns))
            _exchange(walk, p, k, pivot, rows, iter([0]))
            _eliminate(walk, a, k, rows, columns)
        if walk.unrolled or room is not None:
            for i in walk.each(0, rows):
                for j in walk.each(0, columns):
                    memory.store(e.b, (*batch, i, j), a.get(i, j))
        if walk.unrolled:
            for i in range(rows):
                order.memory.store(e.b, (*batch, i), p.get(i, 0))  # type: ignore[union-attr]

    matrix_by_matrix(e, factors, visit, operations)
    return targets


def _i32(value: ty.Value) -> ty.Kind:
    return ty.with_width(ty.I32, ty.width_of(value))


def _fill_order(e: Emitter, order: Array) -> None:
    memory: Any = order.memory
    e.nest(
        order.shape,
        order.lanes,
        lambda i: memory.store(e.b, i, e.b.trunc(as_value(e.b, i[-1]), ty.I32)),
        None,
    )


def _pivot_row(walk: Walk, a: Elements, k: Index, rows: int, width: int) -> ty.Value:
    """The row from k on that has the largest element in column k."""
    e = walk.e
    first = ty.splat(e.b, magnitude(e.b, a.get(k, k)), width)
    largest = walk.cell(first)
    where = walk.cell(ty.splat(e.b, as_value(e.b, k), width))
    for i in walk.each(after(e, k), rows):
        size = ty.splat(e.b, magnitude(e.b, a.get(i, k)), width)
        larger = e.b.fcmp_ordered(">", size, largest.get())
        largest.set(e.b.select(larger, size, largest.get()))
        place = ty.splat(e.b, as_value(e.b, i), width)
        where.set(e.b.select(larger, place, where.get()))
    return where.get()


def _exchange(
    walk: Walk, a: Elements, k: Index, pivot: ty.Value, rows: int, columns: Any
) -> None:
    """Let rows k and `pivot` change places."""
    e = walk.e
    if isinstance(a, InMemory) and not ty.width_of(pivot):
        for j in columns:
            upper, lower = a.get(k, j), a.get(pivot, j)
            a.put(k, j, lower)
            a.put(pivot, j, upper)
        return
    for j in columns:
        upper = walk.cell(ty.splat(e.b, a.get(k, j), ty.width_of(pivot)))
        for i in walk.each(after(e, k), rows):
            place = ty.splat(e.b, as_value(e.b, i), ty.width_of(pivot))
            here = e.b.icmp_signed("==", pivot, place)
            value = ty.splat(e.b, a.get(i, j), ty.width_of(pivot))
            a.put(i, j, e.b.select(here, upper.get(), value))
            # only one row is chosen, so the first value is in it from then on
            upper.set(e.b.select(here, value, upper.get()))
        a.put(k, j, upper.get())


def _eliminate(walk: Walk, a: Elements, k: Index, rows: int, columns: int) -> None:
    """Take the pivot's row off the rows after it."""
    e = walk.e
    pivot = a.get(k, k)
    is_zero = e.b.fcmp_ordered("==", pivot, like(pivot, 0))
    scale = e.b.select(is_zero, like(pivot, 1), reciprocal(e.b, pivot))
    for i in walk.each(after(e, k), rows):
        by = times(e.b, a.get(i, k), scale)
        for j in walk.spans(after(e, k), columns):
            value = minus_product(e.b, a.get(i, j), a.get(k, j), by)
            if isinstance(j, Vec):  # it begins with columns that are done
                here = e.b.icmp_signed(
                    ">", as_value(e.b, j), ty.splat(e.b, as_value(e.b, k), j.width)
                )
                value = chosen(e.b, here, value, a.get(i, j))
            a.put(i, j, value)
        a.put(i, k, by)


def lu_pivots_to_permutation(
    e: Emitter, eqn: Any, operands: list[Array]
) -> list[Array]:
    """The order of rows that exchanges, one after the other, lead to."""
    (pivots,) = operands
    target = e.fresh(eqn.outvars[0])
    if 0 in target.shape:
        return [target]
    rows, steps = target.shape[-1], pivots.shape[-1]
    walk = Walk(e, rows, rows * steps)
    walk.width = 1
    memory: Any = target.memory

    def visit(batch: Batch) -> None:
        order = InMemory(e, memory, lambda i, j: (*batch, i))
        for i in walk.each(0, rows):
            order.put(i, 0, e.b.trunc(as_value(e.b, i), ty.I32))
        for k in walk.each(0, steps):
            where = ty.splat(e.b, pivots.at((*batch, k)), width_at(batch))
            wide = e.b.sext(where, ty.with_width(ty.I64, ty.width_of(where)))
            _exchange(walk, order, k, wide, rows, iter([0]))

    e.nest_in_order(
        target.shape[:-1], target.lanes[:-1], visit, target, None, rows * steps
    )
    return [target]


RULES = {"lu": lu, "lu_pivots_to_permutation": lu_pivots_to_permutation}
