"""Factors by the threads of a block.

Where there are fewer matrices than threads, they share a matrix: one column of a factor
after the other is taken off all elements that come after it.  The arithmetic is that of
`emit.linalg`, where one thread does all of it.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, add, as_value
from onescan.emit.comparisons import maximum, minimum
from onescan.emit.convert import like
from onescan.emit.linalg import cholesky as one_cholesky
from onescan.emit.linalg import lu as one_lu
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
from onescan.targets.nvidia.flat_index import unflattened

#: rows from which on the barriers of a column cost less than one thread's work
FEWEST = 9
#: threads for each matrix from which on they share it
SHARED = 8
#: elements that a thread keeps in registers
KEPT = 40


def is_shared(e: BlockEmitter, rows: int, matrices: int) -> bool:
    """Whether the threads of a block share each matrix."""
    enough = matrices * SHARED <= e.block and rows >= FEWEST
    return enough and not e.apart and e.team == 1


def cholesky(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    shape = e.plan.local_shape(eqn.outvars[0])
    fits = 0 < prod(shape) <= KEPT * e.block
    if not fits or not is_shared(e, shape[-1], prod(shape[:-2])):
        return one_cholesky.cholesky(e, eqn, operands)
    return [_Cholesky(e, eqn, operands[0]).emit()]


class _Cholesky:
    """The lower factor; see `emit.linalg.cholesky` for what is not definite.

    Each thread keeps its elements in registers, and takes a column off them at a time;
    those of the next column are passed on then, so that threads meet once for each.
    """

    def __init__(self, e: BlockEmitter, eqn: Equation, x: Array) -> None:
        self.e, self.x, self.target = e, x, e.fresh(eqn.outvars[0])
        self.factor: Any = self.target.memory
        dtype, shape = self.target.dtype, self.target.shape[:-1]
        lanes = (*self.target.lanes[:-2], None)
        self.columns = e.scratch((2, *shape), (None, *lanes), dtype)  # in turns
        self.inverses = e.scratch(shape, lanes, dtype)
        self.definite = e.scratch(shape, lanes, np.bool_)  # so far
        kind, total = ty.register_type(dtype), prod(self.target.shape)
        self.cells = [e.entry.alloca(kind) for _ in range(-(-total // e.block))]

    def emit(self) -> Array:
        e, n = self.e, self.target.shape[-1]
        with e.phase():
            self._each(self._load)
        with e.loop(n - 1) as k, e.phase():
            self._each(lambda cell, place: self._take_off(cell, place, k))
        e.nest(self.target.shape, self.target.lanes, self._finish)
        return self.target

    def _each(self, body: Any) -> None:
        """Code for all elements of a thread, with where it keeps them."""
        e, total = self.e, prod(self.target.shape)
        for turn, cell in enumerate(self.cells):
            flat = add(e.b, e.here, turn * e.block)
            place = unflattened(e.b, flat, self.target.shape)
            if (turn + 1) * e.block <= total:
                body(cell, place)
            else:
                with e.b.if_then(e.below(flat, total)):
                    body(cell, place)

    def _load(self, cell: ty.Value, place: Place) -> None:
        e, (*_, i, j) = self.e, place
        value = self.x.at(place)
        e.b.store(value, cell)
        with e.b.if_then(_compared(e, ">", j, i)):
            self.factor.store(e.b, place, like(value, 0))
        with e.b.if_then(_compared(e, "==", j, 0)):
            self._pass_on(place, value)

    def _take_off(self, cell: ty.Value, place: Place, k: ty.Value) -> None:
        e, b, (*rest, i, j) = self.e, self.e.b, place
        inverse, turn = self.inverses.load(b, (*rest, k)), _turn(b, k)
        here, by = (
            times(b, self.columns.load(b, (turn, *rest, m)), inverse) for m in (i, j)
        )
        left = minus_product(b, b.load(cell), here, by)
        b.store(left, cell)  # of no use any more where the column is done
        lower = _compared(e, ">=", i, j)
        below = b.and_(lower, _compared(e, ">", i, k))
        with b.if_then(b.and_(below, _compared(e, "==", j, k))):
            self.factor.store(b, place, here)
        following = b.add(k, ir.Constant(ty.I64, 1))
        with b.if_then(b.and_(lower, _compared(e, "==", j, following))):
            self._pass_on(place, left)

    def _pass_on(self, place: Place, value: ty.Value) -> None:
        """Let all threads have an element of the column that is next."""
        e, b, (*rest, i, k) = self.e, self.e.b, place
        self.columns.store(b, (_turn(b, k), *rest, i), value)
        with b.if_then(_compared(e, "==", i, k)):
            diagonal = root(b, value)
            self.factor.store(b, place, diagonal)
            self.inverses.store(b, (*rest, k), reciprocal(b, diagonal))
            positive = b.fcmp_unordered(">", value, like(value, 0))
            is_first = _compared(e, "==", k, 0)
            before = b.sub(as_value(b, k), b.zext(b.not_(is_first), ty.I64))
            so_far = b.or_(is_first, self.definite.load(b, (*rest, before)))
            self.definite.store(b, (*rest, k), b.and_(so_far, positive))

    def _finish(self, place: Place) -> None:
        e, (*rest, i, j) = self.e, place
        wrong = e.b.not_(self.definite.load(e.b, (*rest, self.target.shape[-1] - 1)))
        with e.b.if_then(e.b.and_(wrong, _compared(e, ">=", i, j))):
            kind = ty.register_type(self.target.dtype)
            self.factor.store(e.b, place, ty.constant(kind, float("nan")))


def _turn(b: ty.Builder, k: Index) -> Index:
    """Which of two places a column has."""
    return b.and_(as_value(b, k), ir.Constant(ty.I64, 1))


def lu(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    shape = e.plan.local_shape(eqn.outvars[0])
    if 0 in shape or not is_shared(e, min(shape[-2:]), prod(shape[:-2])):
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
        steps = min(self.shape[-2:])
        self.inverses = e.scratch((*batch, steps), (*outer, None), self.dtype)
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
        with e.loop(min(rows, columns)) as k:
            self.k: Index = k
            sums(e, self.largest, [rows], none, self._larger, maximum)
            sums(e, self.where, [rows], last, self._first, minimum)
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
        return maximum(self.e.b, self.dtype, total, self._size(rest, term[0]))

    def _first(self, total: ty.Value, rest: Place, term: Place) -> ty.Value:
        """The first row with the largest element; NaN on the diagonal stays there."""
        e, b, (i,) = self.e, self.e.b, term
        found = b.fcmp_ordered("==", self._size(rest, i), self.largest.at(rest))
        found = b.and_(found, _compared(e, ">=", i, self.k))
        value = self.a.load(b, (*rest, i, self.k))
        nan = b.fcmp_unordered("uno", value, value)
        found = b.or_(found, b.and_(nan, _compared(e, "==", i, self.k)))
        here = b.select(found, b.trunc(as_value(b, i), ty.I32), total)
        return minimum(b, self.number, total, here)

    def _exchange(self, place: Place) -> None:
        e, k, (*rest, j) = self.e, self.k, place
        row = e.b.sext(self.where.at(tuple(rest)), ty.I64)
        with e.b.if_else(_compared(e, "<", j, k)) as (done, rest_of_it):
            with done:
                _swap(e, self.factors, (*rest, k, j), (*rest, row, j))
            with rest_of_it:
                pivot = _swap(e, self.a, (*rest, k, j), (*rest, row, j))
                with e.b.if_then(_compared(e, "==", j, k)):
                    is_zero = e.b.fcmp_ordered("==", pivot, like(pivot, 0))
                    inverse = reciprocal(e.b, pivot)
                    inverse = e.b.select(is_zero, like(pivot, 1), inverse)
                    self.inverses.store(e.b, (*rest, k), inverse)
        with e.b.if_then(_compared(e, "==", j, 0)):
            _swap(e, self.order, (*rest, k), (*rest, row))
            self.pivots.store(e.b, (*rest, k), e.b.trunc(row, ty.I32))

    def _take_off(self, place: Place) -> None:
        e, k, (*rest, i, j) = self.e, self.k, place
        b, a = e.b, self.a
        with b.if_then(b.and_(_compared(e, ">", i, k), _compared(e, ">=", j, k))):
            inverse = self.inverses.load(b, (*rest, k))
            by = times(b, a.load(b, (*rest, i, k)), inverse)
            with b.if_else(_compared(e, "==", j, k)) as (its_column, later):
                with its_column:
                    self.factors.store(b, place, by)
                with later:
                    upper = a.load(b, (*rest, k, j))
                    a.store(b, place, minus_product(b, a.load(b, place), upper, by))

    def _finish(self, place: Place) -> None:
        e, (i, j) = self.e, place[-2:]
        with e.b.if_then(_compared(e, "<=", i, j)):
            self.factors.store(e.b, place, self.a.load(e.b, place))


def _swap(e: BlockEmitter, memory: Any, one: Place, other: Place) -> ty.Value:
    """Let two elements change places; the one that is first now."""
    upper, lower = (memory.load(e.b, place) for place in (one, other))
    memory.store(e.b, one, lower)
    memory.store(e.b, other, upper)
    return lower


def _compared(e: BlockEmitter, how: str, i: Index, j: Index) -> ty.Value:
    return e.b.icmp_signed(how, as_value(e.b, i), as_value(e.b, j))


RULES = {"cholesky": cholesky, "lu": lu}
