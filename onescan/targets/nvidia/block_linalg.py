"""Factors and triangular systems by the threads of a block.

Where there are fewer matrices than threads, all threads work on one matrix: a column or
an unknown after the other, whose elements are computed side by side, and then all that
depend on it.  The arithmetic is that of `emit.linalg`, where one thread does all of it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from llvmlite import ir

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, as_value
from onescan.emit.convert import like
from onescan.emit.linalg import cholesky as one_cholesky
from onescan.emit.linalg import lu as one_lu
from onescan.emit.linalg import triangular as one_triangular
from onescan.emit.linalg.matrix import (
    magnitude,
    minus_product,
    reciprocal,
    root,
    times,
)
from onescan.loop import Equation
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_reductions import Place, sums

#: rows from which on the barriers of a column cost less than one thread's work
FEWEST = 6
#: threads for each matrix, or column of unknowns, from which on they share it
SHARED = 8


def _shares(e: BlockEmitter, rows: int, alone: int) -> bool:
    """Whether threads share what so many of them could do one each."""
    return not e.apart and e.team == 1 and rows >= FEWEST and alone * SHARED <= e.block


def cholesky(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    *batch, n, _ = shape = e.plan.local_shape(out)
    if 0 in batch or not _shares(e, n, prod(batch)):
        return one_cholesky.cholesky(e, eqn, operands)
    target = e.fresh(out)
    lanes, dtype = target.lanes, target.dtype
    factor: Any = target.memory
    a = e.scratch(shape, lanes, dtype)  # what is still to be explained
    kind = ty.register_type(dtype)
    zero, nan = (ty.constant(kind, v) for v in (0.0, float("nan")))

    def load(place: Place) -> None:
        a.store(e.b, place, x.at(place))
        factor.store(e.b, place, zero)

    def take_off(place: Place, k: Index) -> None:
        *rest, i, j = place
        todo = _both(e, _compared(e, ">=", j, k), _compared(e, ">=", i, j))
        with e.b.if_then(todo):
            diagonal = root(e.b, a.load(e.b, (*rest, k, k)))
            scale = reciprocal(e.b, diagonal)
            here, by = (times(e.b, a.load(e.b, (*rest, m, k)), scale) for m in (i, j))
            done = _compared(e, "==", j, k)
            with e.b.if_else(done) as (its_column, later):
                with its_column:
                    first = _compared(e, "==", i, k)
                    factor.store(e.b, place, e.b.select(first, diagonal, here))
                with later:
                    value = minus_product(e.b, a.load(e.b, place), here, by)
                    a.store(e.b, place, value)

    e.nest(shape, lanes, load)
    with e.loop(n, unroll=1) as k:
        e.nest(shape, lanes, lambda place: take_off(place, k))

    def finish(place: Place) -> None:
        """A matrix that is not positive definite has a factor of NaN, as a whole."""
        *rest, i, j = place
        definite = e.entry.alloca(ty.I1)
        e.b.store(ir.Constant(ty.I1, 1), definite)
        with e.loop(n, unroll=4) as k:
            pivot = a.load(e.b, (*rest, k, k))
            positive = e.b.fcmp_unordered(">", pivot, zero)
            e.b.store(e.b.and_(e.b.load(definite), positive), definite)
        wrong = e.b.not_(e.b.load(definite))
        with e.b.if_then(_both(e, wrong, _compared(e, ">=", i, j))):
            factor.store(e.b, place, nan)

    e.nest(shape, lanes, finish)
    return [target]


def triangular_solve(
    e: BlockEmitter, eqn: Equation, operands: list[Array]
) -> list[Array]:
    (out,) = eqn.outvars
    left, unit = eqn.params["left_side"], eqn.params["unit_diagonal"]
    shape = e.plan.local_shape(out)
    *batch, n, columns = shape if left else (*shape[:-2], shape[-1], shape[-2])
    if 0 in shape or not _shares(e, n, prod(batch) * columns):
        return one_triangular.triangular_solve(e, eqn, operands)
    matrix, right, target = e.once(operands[0]), operands[1], e.fresh(out)
    lanes, dtype = target.lanes, target.dtype
    solved: Any = target.memory
    swapped = eqn.params["transpose_a"] == left
    downwards = eqn.params["lower"] != swapped
    left_over = e.scratch(shape, lanes, dtype)
    inverses = e.scratch((*batch, n), (*lanes[:-2], None), dtype)

    def at(rest: list[Index], i: Index, c: Index) -> Place:
        """Where unknown i of a column stands."""
        return (*rest, i, c) if left else (*rest, c, i)

    def coefficient(rest: list[Index], i: Index, j: Index) -> ty.Value:
        return matrix.at((*rest, j, i) if swapped else (*rest, i, j))

    def invert(place: Place) -> None:
        *rest, i = place
        inverses.store(e.b, place, reciprocal(e.b, coefficient(rest, i, i)))

    def take_off(place: Place, k: Index) -> None:
        *rest, i, c = place
        with e.b.if_then(_compared(e, ">=" if downwards else "<=", i, k)):
            known = left_over.load(e.b, at(rest, k, c))
            if not unit:
                known = times(e.b, known, inverses.load(e.b, (*rest, k)))
            here = at(rest, i, c)
            with e.b.if_else(_compared(e, "==", i, k)) as (its_row, later):
                with its_row:
                    solved.store(e.b, here, known)
                with later:
                    by, value = coefficient(rest, i, k), left_over.load(e.b, here)
                    left_over.store(e.b, here, minus_product(e.b, value, known, by))

    e.put(e.stored(left_over, shape, lanes), right)
    if not unit:
        e.nest((*batch, n), (*lanes[:-2], None), invert)
    with e.loop(n, unroll=1) as step:
        k = step if downwards else e.b.sub(ir.Constant(ty.I64, n - 1), step)
        e.nest(
            (*batch, n, columns),
            (*lanes[:-2], None, None),
            lambda place: take_off(place, k),
        )
    return [target]


def lu(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    *batch, rows, columns = e.plan.local_shape(eqn.outvars[0])
    if 0 in batch or not _shares(e, min(rows, columns), prod(batch)):
        return one_lu.lu(e, eqn, operands)
    return _Lu(e, eqn, operands[0]).emit()


class _Lu:
    """Elimination with pivots; the lower factor is put away as it is found."""

    def __init__(self, e: BlockEmitter, eqn: Equation, x: Array) -> None:
        self.e, self.x = e, x
        self.targets = [e.fresh(v) for v in eqn.outvars]
        factors, pivots, order = self.targets
        self.shape, self.lanes, self.dtype = factors.shape, factors.lanes, factors.dtype
        self.number = pivots.dtype
        self.factors: Any = factors.memory
        self.pivots: Any = pivots.memory
        self.order: Any = order.memory
        self.a = e.scratch(self.shape, self.lanes, self.dtype)  # still to be done
        batch, outer = self.shape[:-2], self.lanes[:-2]
        self.largest, self.where = (
            e.stored(e.scratch(batch, outer, kind), batch, outer)
            for kind in (self.dtype, self.number)
        )

    def emit(self) -> list[Array]:
        e, (*batch, rows, columns) = self.e, self.shape
        outer = (*self.lanes[:-2], None)
        none = ty.constant(ty.register_type(self.dtype), -1.0)
        last = ty.constant(ty.register_type(self.number), rows)
        e.nest(self.shape, self.lanes, self._load)
        with e.loop(min(rows, columns), unroll=1) as k:
            self.k: Index = k
            sums(e, self.largest, [rows], none, self._larger, el.maximum)
            sums(e, self.where, [rows], last, self._first, el.minimum)
            e.nest((*batch, columns), outer, self._exchange)
            e.nest(self.shape, self.lanes, self._take_off)
        e.nest(self.shape, self.lanes, self._finish)
        return self.targets

    def _load(self, place: Place) -> None:
        e, (*rest, i, j) = self.e, place
        self.a.store(e.b, place, self.x.at(place))
        with e.b.if_then(_compared(e, "==", j, 0)):
            self.order.store(e.b, (*rest, i), e.b.trunc(as_value(e.b, i), ty.I32))

    def _size(self, rest: Place, i: Index) -> ty.Value:
        """Of an element of the column; below zero if it cannot be the pivot."""
        b = self.e.b
        size = magnitude(b, self.a.load(b, (*rest, i, self.k)))
        counts = b.fcmp_ordered("ord", size, size)
        counts = b.and_(counts, _compared(self.e, ">=", i, self.k))
        return b.select(counts, size, like(size, -1))

    def _larger(self, total: ty.Value, rest: Place, term: Place) -> ty.Value:
        return el.maximum(self.e.b, self.dtype, total, self._size(rest, term[0]))

    def _first(self, total: ty.Value, rest: Place, term: Place) -> ty.Value:
        """The first row with the largest element; NaN on the diagonal stays there."""
        e, b, (i,) = self.e, self.e.b, term
        found = b.fcmp_ordered("==", self._size(rest, i), self.largest.at(rest))
        found = b.and_(found, _compared(e, ">=", i, self.k))
        value = self.a.load(b, (*rest, i, self.k))
        nan = b.fcmp_unordered("uno", value, value)
        found = b.or_(found, _both(e, nan, _compared(e, "==", i, self.k)))
        here = b.select(found, b.trunc(as_value(b, i), ty.I32), total)
        return el.minimum(b, self.number, total, here)

    def _exchange(self, place: Place) -> None:
        e, k, (*rest, j) = self.e, self.k, place
        row = e.b.sext(self.where.at(tuple(rest)), ty.I64)
        with e.b.if_else(_compared(e, "<", j, k)) as (done, rest_of_it):
            with done:
                _swap(e, self.factors, (*rest, k, j), (*rest, row, j))
            with rest_of_it:
                _swap(e, self.a, (*rest, k, j), (*rest, row, j))
        with e.b.if_then(_compared(e, "==", j, 0)):
            _swap(e, self.order, (*rest, k), (*rest, row))
            self.pivots.store(e.b, (*rest, k), e.b.trunc(row, ty.I32))

    def _take_off(self, place: Place) -> None:
        e, k, (*rest, i, j) = self.e, self.k, place
        b, a = e.b, self.a
        with b.if_then(_both(e, _compared(e, ">", i, k), _compared(e, ">=", j, k))):
            pivot = a.load(b, (*rest, k, k))
            is_zero = b.fcmp_ordered("==", pivot, like(pivot, 0))
            scale = b.select(is_zero, like(pivot, 1), reciprocal(b, pivot))
            by = times(b, a.load(b, (*rest, i, k)), scale)
            with b.if_else(_compared(e, "==", j, k)) as (its_column, later):
                with its_column:
                    self.factors.store(b, place, by)
                with later:
                    upper = a.load(b, (*rest, k, j))
                    a.store(b, place, minus_product(b, a.load(b, place), upper, by))

    def _finish(self, place: Place) -> None:
        e, (_, i, j) = self.e, (None, *place[-2:])
        with e.b.if_then(_compared(e, "<=", i, j)):
            self.factors.store(e.b, place, self.a.load(e.b, place))


def _swap(e: BlockEmitter, memory: Any, one: Place, other: Place) -> None:
    upper, lower = (memory.load(e.b, place) for place in (one, other))
    memory.store(e.b, one, lower)
    memory.store(e.b, other, upper)


def _compared(e: BlockEmitter, how: str, i: Index, j: Index) -> ty.Value:
    return e.b.icmp_signed(how, as_value(e.b, i), as_value(e.b, j))


def _both(e: BlockEmitter, x: ty.Value, y: ty.Value) -> ty.Value:
    return e.b.and_(x, y)


RULES = {"cholesky": cholesky, "triangular_solve": triangular_solve, "lu": lu}
