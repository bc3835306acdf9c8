"""svd by the threads of a block; what is turned when is as in `emit.linalg.svd`.

A few neighbours of a warp have a pair of columns in each round: they find its products
by exchanges, and turn it with no barrier between.  The other side is that of a QR
factorisation by the block.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, as_value
from onescan.emit.convert import intrinsic, like
from onescan.emit.linalg import svd as one_svd
from onescan.emit.linalg.jacobi import Turn, is_finite, rotation, unit_of
from onescan.emit.linalg.matrix import magnitude, over, root, same, times
from onescan.loop import Equation
from onescan.targets.nvidia.block_columns import Columns, Groups
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_jacobi import Problem, Sweeps, Tournament, near, ranks
from onescan.targets.nvidia.block_linalg import KEPT, is_shared
from onescan.targets.nvidia.block_matrices import Matrices
from onescan.targets.nvidia.block_qr import Reflections, orthogonal, vector_room
from onescan.targets.nvidia.block_reductions import Place
from onescan.targets.nvidia.flat_index import unflattened

#: banks of shared memory, and bytes of each
BANKS, BANK = 32, 4


def svd(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    x = operands[0]
    *batch, rows, columns = x.shape
    few = 0 in batch or min(rows, columns) < 2
    if few or not is_shared(e, max(rows, columns), prod(batch)):
        return one_svd.svd(e, eqn, operands)
    rows, columns = max(rows, columns), min(rows, columns)
    asked_for = rows if eqn.params["full_matrices"] else columns
    for count in (columns // 2, asked_for):
        groups = Groups(e, prod(batch) * count, rows)
        if groups.rounds * groups.each > KEPT:
            return one_svd.svd(e, eqn, operands)
    return _Svd(e, eqn, e.once(x), asked_for).emit()


class _Svd(Problem):
    """Matrices with no more columns than rows: a wide one is done as its transpose."""

    def __init__(
        self, e: BlockEmitter, eqn: Equation, x: Array, asked_for: int
    ) -> None:
        self.e, self.x, self.dtype = e, x, x.dtype
        self.wide = x.shape[-2] < x.shape[-1]
        self.n, self.rows = sorted(x.shape[-2:])
        self.asked_for = asked_for
        self.of = Matrices(e, x.shape[:-2], x.lanes[:-2])
        self.games = Tournament(self.n)
        self.sweeps = Sweeps(e, self.games)
        count = prod(self.of.batch) * self.games.pairs
        self.groups = Groups(e, count, self.rows)
        self.turned_rows = -(-self.n // self.groups.parts)  # of a thread
        columns, new = self.games.columns, self.of.scratch
        self.a_room = self._apart(self.groups.padded)
        self.a = new(self.dtype, columns, self.a_room)
        self.least = new(self.dtype)
        self.targets = [e.fresh(eqn.outvars[0]), *self._sides(eqn.outvars[1:])]
        self.values: Any = self.targets[0].memory
        self.left: Any = None
        self.right: Any = None
        if sides := [target.memory for target in self.targets[1:]]:
            self.left, self.right = reversed(sides) if self.wide else sides
            self.v_room = self._apart(self.turned_rows * self.groups.parts)
            self.v = new(self.dtype, columns, self.v_room)
            self.origins = new(np.int32, self.n)
            self.signs = new(self.dtype, asked_for)

    def _sides(self, outvars: Any) -> list[Array]:
        """Where both sides go: the columns are not needed any more when one is made."""
        e = self.e
        made: list[Any] = [None for _ in outvars]
        if made and self.asked_for == self.n:
            made[self.wide] = self.a
        targets: list[Array] = []
        for var, room in zip(outvars, made, strict=True):
            if room is None:
                targets.append(e.fresh(var))
                continue
            shape, lanes = e.plan.local_shape(var), e.plan.local_lanes(var)
            strides = (*room.strides[:-2], shape[-1], 1)
            targets.append(e.stored(replace(room, strides=strides), shape, lanes))
        return targets

    def _apart(self, rows: int) -> int:
        """Room of a column, so that neighbours have theirs in different banks."""
        size = np.dtype(self.dtype).itemsize // BANK
        wanted = self.groups.parts * size % BANKS
        return next(n for n in range(rows, rows + BANKS) if n * size % BANKS == wanted)

    def emit(self) -> list[Array]:
        of, n = self.of, self.n
        new, whole = of.reduced, [self.rows, n]
        self.sizes = new("reduce_max", self.dtype, (), whole, self._size)
        of.nest((self.games.columns, self.a_room), self._load)
        if self.left:
            of.nest((self.games.columns, self.v_room), self._begin)
        squares = new("reduce_sum", self.dtype, (), whole, self._square)
        share = 4 * n  # of which a product may be, for each unit of the larger column
        of.nest((), lambda batch: self._put_share(self.least, batch, squares, share))
        self.sweeps.run(self._round)
        self.squares = new("reduce_sum", self.dtype, (n,), [self.rows], self._squares)
        self.order = ranks(of, n, lambda batch, j: self.squares.at((*batch, j)), ">")
        of.nest((n,), self._put_value)
        if self.left:
            of.nest((n, n), self._put_right)
            self._put_left()
        return self.targets

    # columns

    def _given(self, batch: Place, i: Index, j: Index) -> ty.Value:
        return self.x.at((*batch, j, i) if self.wide else (*batch, i, j))

    def _load(self, batch: Place, j: Index, i: Index) -> None:
        b = self.e.b
        column, is_column = near(self.e, j, self.n)
        row, is_row = near(self.e, i, self.rows)
        value = self._given(batch, row, column)
        value = b.select(b.and_(is_column, is_row), value, like(value, 0))
        unit = unit_of(b, self.sizes.at(batch))
        self.a.store(b, (*batch, j, i), over(b, value, unit))

    def _begin(self, batch: Place, j: Index, i: Index) -> None:
        one, zero = (ty.constant(ty.register_type(self.dtype), k) for k in (1, 0))
        self.v.store(self.e.b, (*batch, j, i), same(self.e, i, j, one, zero))

    def _square(self, batch: Place, i: Index, j: Index) -> ty.Value:
        return self._squares(batch, j, i)

    def _squares(self, batch: Place, j: Index, i: Index) -> ty.Value:
        value = self.a.load(self.e.b, (*batch, j, i))
        return times(self.e.b, value, value)

    # a round

    def _round(self, k: ty.Value) -> None:
        with self.e.phase():
            for number in range(self.groups.rounds):
                self._turn(k, number)

    def _turn(self, k: ty.Value, number: int) -> None:
        """Turn a pair of columns, if their product is too large."""
        b, groups = self.e.b, self.groups
        flat, is_one = groups.column(number)
        *front, s = unflattened(b, flat, (*self.of.batch, self.games.pairs))
        batch, pair = tuple(front), self.games.pair(b, k, s)
        xs, ys = self._loaded(self.a, batch, pair, groups.each)
        first, joint, last = (
            groups.dot(list(zip(*both, strict=True)), self.dtype)
            for both in ((xs, xs), (xs, ys), (ys, ys))
        )
        sizes = root(b, first), root(b, last)
        larger = b.select(b.fcmp_ordered(">", *sizes), *sizes)
        relative = like(first, sqrt(self.rows) * float(np.finfo(self.dtype).eps))
        limits = (
            times(b, times(b, *sizes), relative),
            times(b, larger, self.least.load(b, batch)),
        )
        large, clear = (b.fcmp_ordered(">", magnitude(b, joint), m) for m in limits)
        wanted = b.and_(large, clear)
        by = rotation(b, b.fsub(last, first), joint, wanted)
        with b.if_then(b.and_(wanted, is_one)):
            self._put(self.a, batch, pair, by, xs, ys)
            if self.left:
                both = self._loaded(self.v, batch, pair, self.turned_rows)
                self._put(self.v, batch, pair, by, *both)
            self.sweeps.go_on()

    def _loaded(
        self, memory: Any, batch: Place, pair: Any, count: int
    ) -> list[list[ty.Value]]:
        """The rows of this thread of two columns."""
        rows = [self.groups.row(r) for r in range(count)]
        return [[memory.load(self.e.b, (*batch, j, i)) for i in rows] for j in pair]

    def _put(
        self,
        memory: Any,
        batch: Place,
        pair: Any,
        by: Turn,
        xs: list[ty.Value],
        ys: list[ty.Value],
    ) -> None:
        """Put them back, turned."""
        b = self.e.b
        for r, both in enumerate(zip(xs, ys, strict=True)):
            i = self.groups.row(r)
            for j, value in zip(pair, by.apply(b, *both), strict=True):
                memory.store(b, (*batch, j, i), value)

    # results

    def _put_value(self, batch: Place, j: Index) -> None:
        b, (at, good) = self.e.b, self._at(batch, j)
        unit = unit_of(b, self.sizes.at(batch))
        value = times(b, root(b, self.squares.at((*batch, j))), unit)
        value = b.select(good, value, like(value, float("nan")))
        self.values.store(b, (*batch, at), value)
        if self.left:
            origin = b.trunc(as_value(b, j), ty.I32)
            self.origins.store(b, (*batch, at), origin)

    def _put_right(self, batch: Place, j: Index, i: Index) -> None:
        b, (at, good) = self.e.b, self._at(batch, j)
        value = self.v.load(b, (*batch, j, i))
        self._put_side(self.right, not self.wide, batch, i, at, value, good)

    def _put_side(
        self,
        side: Any,
        swapped: bool,
        batch: Place,
        i: Index,
        j: Index,
        value: ty.Value,
        good: ty.Value,
    ) -> None:
        b = self.e.b
        value = b.select(good, value, like(value, float("nan")))
        side.store(b, (*batch, j, i) if swapped else (*batch, i, j), value)

    def _put_left(self) -> None:
        """The orthogonal factor of the columns, in order, with signs of its own."""
        e, b, of = self.e, self.e.b, self.of
        columns = Columns(e, self.dtype, (*of.batch, self.n), self.rows)
        room = self.v if self.v_room >= vector_room(self.rows) else None
        reflections = Reflections(
            e, self.dtype, of.batch, of.lanes, self.rows, self.n, room
        )
        one = ty.constant(ty.register_type(self.dtype), 1)

        def load(batch: Place, i: Index, j: Index) -> ty.Value:
            origin = b.sext(self.origins.load(b, (*batch, j)), ty.I64)
            return self.a.load(b, (*batch, origin, i))

        def put_sign(batch: Place, i: Index, j: Index, value: ty.Value) -> None:
            with b.if_then(b.icmp_signed("==", as_value(b, i), as_value(b, j))):
                sign = intrinsic(b, "llvm.copysign", one, value)
                self.signs.store(b, (*batch, j), sign)

        def put(batch: Place, i: Index, j: Index, value: ty.Value) -> None:
            value = times(b, value, self.signs.load(b, (*batch, j)))
            good = is_finite(b, self.sizes.at(batch))
            self._put_side(self.left, self.wide, batch, i, j, value, good)

        of.nest(
            (self.asked_for,), lambda batch, j: self.signs.store(b, (*batch, j), one)
        )
        with e.phase():
            columns.load(load)
        reflections.of(columns)
        with e.phase():
            columns.store(self.n, put_sign)
        orthogonal(e, reflections, self.asked_for, put)


RULES = {"svd": svd}
