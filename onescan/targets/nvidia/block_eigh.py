"""eigh by the threads of a block; what is turned when is as in `emit.linalg.eigh`.

A round of a sweep has two phases: the angles of all pairs, each by one thread, and the
turns.  Two pairs have four elements of the matrix in common, which one thread turns
both ways.  The matrix is a lower triangle: the larger number of an element's two is
that of its row.
"""

from __future__ import annotations

from math import prod
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, add, as_value, scale
from onescan.emit.convert import like
from onescan.emit.linalg import eigh as one_eigh
from onescan.emit.linalg.jacobi import (
    Turn,
    plus_product,
    rotation,
    unit_of,
)
from onescan.emit.linalg.matrix import (
    magnitude,
    minus_product,
    over,
    same,
    times,
)
from onescan.loop import Equation
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_jacobi import Problem, Sweeps, Tournament, near, ranks
from onescan.targets.nvidia.block_linalg import is_shared
from onescan.targets.nvidia.block_matrices import Matrices
from onescan.targets.nvidia.block_reductions import Place

#: rows of the vectors that a thread turns at a time
ROWS = 4


def eigh(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    shape = e.plan.local_shape(eqn.outvars[0])
    if 0 in shape or not is_shared(e, shape[-1], prod(shape[:-2])):
        return one_eigh.eigh(e, eqn, operands)
    return _Eigh(e, eqn, e.once(operands[0])).emit()


class _Eigh(Problem):
    def __init__(self, e: BlockEmitter, eqn: Equation, x: Array) -> None:
        self.e, self.x, self.lower = e, x, eqn.params["lower"]
        self.targets = [e.fresh(v) for v in eqn.outvars]
        vectors, values = self.targets
        self.vectors: Any = vectors.memory
        self.values: Any = values.memory
        self.n, self.dtype = values.shape[-1], x.dtype
        self.of = Matrices(e, values.shape[:-1], values.lanes[:-1])
        self.games = Tournament(self.n)
        self.sweeps = Sweeps(e, self.games)
        self.rows = -(-self.n // ROWS)  # of the vectors, as many as a thread turns
        columns, pairs, new = self.games.columns, self.games.pairs, self.of.scratch
        # vectors come when the matrix is not needed any more
        whole = columns == self.n
        self.a = self.vectors if whole else new(self.dtype, columns, columns)
        self.v = new(self.dtype, self.rows * ROWS, columns)
        self.sines, self.halves = new(self.dtype, pairs), new(self.dtype, pairs)
        self.limits = new(self.dtype)

    def emit(self) -> list[Array]:
        of, n, all_of_it = self.of, self.n, [self.n, self.n]
        columns = self.games.columns
        self.sizes = of.reduced("reduce_max", self.dtype, (), all_of_it, self._size)
        of.nest((columns, columns), self._load)
        of.nest((self.rows * ROWS, columns), self._begin)
        squares = of.reduced("reduce_sum", self.dtype, (), all_of_it, self._square)
        share = 2 * n  # of which an element may be
        of.nest((), lambda batch: self._put_share(self.limits, batch, squares, share))
        self.sweeps.run(self._round)
        self.order = ranks(of, n, self._diagonal, "<")
        of.nest((n,), self._put_value)
        of.nest((n, n), self._put_vector)
        return self.targets

    # the matrix

    def _given(self, batch: Place, i: Index, j: Index) -> ty.Value:
        """An element of the triangle that counts, or zero."""
        b = self.e.b
        value = self.x.at((*batch, i, j) if self.lower else (*batch, j, i))
        counts = b.icmp_signed(">=", as_value(b, i), as_value(b, j))
        return b.select(counts, value, like(value, 0))

    def _load(self, batch: Place, i: Index, j: Index) -> None:
        b = self.e.b
        row, is_row = near(self.e, i, self.n)
        column, is_column = near(self.e, j, self.n)
        value = self._given(batch, row, column)
        value = b.select(b.and_(is_row, is_column), value, like(value, 0))
        unit = unit_of(b, self.sizes.at(batch))
        self.a.store(b, (*batch, i, j), over(b, value, unit))

    def _begin(self, batch: Place, i: Index, j: Index) -> None:
        one, zero = (ty.constant(ty.register_type(self.dtype), k) for k in (1, 0))
        self.v.store(self.e.b, (*batch, i, j), same(self.e, i, j, one, zero))

    def _square(self, batch: Place, i: Index, j: Index) -> ty.Value:
        value = self.a.load(self.e.b, (*batch, i, j))
        return times(self.e.b, value, value)

    # a round

    def _round(self, k: ty.Value) -> None:
        e, games = self.e, self.games
        self.of.nest((games.pairs,), lambda batch, s: self._angle(batch, k, s))
        with e.phase():
            self._spread(
                (games.pairs // 2, games.pairs),
                lambda batch, d, s: self._turn_matrix(batch, k, d, s),
            )
            self._spread(
                (self.rows, games.pairs),
                lambda batch, i, s: self._turn_vectors(batch, k, i, s),
            )

    def _spread(self, shape: tuple[int, ...], visit: Any) -> None:
        rank = len(self.of.batch)
        self.e.spread_shape(
            (*self.of.batch, *shape), lambda i: visit(i[:rank], *i[rank:])
        )

    def _angle(self, batch: Place, k: ty.Value, s: Index) -> None:
        """The angle of a pair, whose own elements of the matrix are done then."""
        b, a = self.e.b, self.a
        p, q = self.games.pair(b, k, s)
        joint = a.load(b, self._place(batch, p, q))
        first, last = (a.load(b, (*batch, i, i)) for i in (p, q))
        limit = self.limits.load(b, batch)
        wanted = b.fcmp_ordered(">", magnitude(b, joint), limit)
        by = rotation(b, b.fsub(last, first), joint, wanted)
        self.sines.store(b, (*batch, s), by.sine)
        self.halves.store(b, (*batch, s), by.half)
        with b.if_then(wanted):
            a.store(b, (*batch, p, p), minus_product(b, first, by.tangent, joint))
            a.store(b, (*batch, q, q), plus_product(b, last, by.tangent, joint))
            a.store(b, self._place(batch, p, q), like(joint, 0))
            self.sweeps.go_on()

    def _place(self, batch: Place, i: ty.Value, j: ty.Value) -> Place:
        """Where an element of the lower triangle stands."""
        b = self.e.b
        is_lower = b.icmp_signed(">", i, j)
        return (*batch, b.select(is_lower, i, j), b.select(is_lower, j, i))

    def _turn_of(self, batch: Place, s: Index) -> tuple[Turn, ty.Value]:
        """The turn of a pair, and whether it is one."""
        b = self.e.b
        sine, half = (m.load(b, (*batch, s)) for m in (self.sines, self.halves))
        return Turn(sine, half), b.fcmp_ordered("!=", sine, like(sine, 0))

    def _turn_matrix(self, batch: Place, k: ty.Value, d: Index, s: Index) -> None:
        """Turn what a pair has in common with the one that is d + 1 after it."""
        b, pairs = self.e.b, self.games.pairs
        count = ir.Constant(ty.I64, pairs)
        one = as_value(b, s)
        ahead = as_value(b, add(b, add(b, d, 1), s))
        other = b.select(b.icmp_signed("<", ahead, count), ahead, b.sub(ahead, count))
        (by, is_turned), (beside, too) = (
            self._turn_of(batch, number) for number in (one, other)
        )
        needed = b.or_(is_turned, too)
        if pairs % 2 == 0:  # half way around, each meets the other only once
            far = b.icmp_signed(
                "==", as_value(b, d), ir.Constant(ty.I64, pairs // 2 - 1)
            )
            again = b.and_(far, b.icmp_signed(">", one, other))
            needed = b.and_(needed, b.not_(again))
        with b.if_then(needed):
            rows, columns = (self.games.pair(b, k, m) for m in (one, other))
            places = [[self._place(batch, i, j) for j in columns] for i in rows]
            values = [[self.a.load(b, place) for place in row] for row in places]
            values = [beside.apply(b, *row) for row in values]
            turned = [by.apply(b, *column) for column in zip(*values, strict=True)]
            for row, found in zip(places, zip(*turned, strict=True), strict=True):
                for place, value in zip(row, found, strict=True):
                    self.a.store(b, place, value)

    def _turn_vectors(self, batch: Place, k: ty.Value, i: Index, s: Index) -> None:
        """Turn some rows of two vectors."""
        b = self.e.b
        by, is_turned = self._turn_of(batch, s)
        with b.if_then(is_turned):
            pair = self.games.pair(b, k, s)
            rows = [add(b, scale(b, i, ROWS), r) for r in range(ROWS)]
            places = [[(*batch, row, j) for j in pair] for row in rows]
            values = [[self.v.load(b, place) for place in row] for row in places]
            for row, found in zip(places, values, strict=True):
                for place, value in zip(row, by.apply(b, *found), strict=True):
                    self.v.store(b, place, value)

    # results

    def _diagonal(self, batch: Place, i: Index) -> ty.Value:
        return self.a.load(self.e.b, (*batch, i, i))

    def _put_value(self, batch: Place, j: Index) -> None:
        b, (at, good) = self.e.b, self._at(batch, j)
        unit = unit_of(b, self.sizes.at(batch))
        value = times(b, self._diagonal(batch, j), unit)
        value = b.select(good, value, like(value, float("nan")))
        self.values.store(b, (*batch, at), value)

    def _put_vector(self, batch: Place, i: Index, j: Index) -> None:
        b, (at, good) = self.e.b, self._at(batch, j)
        value = self.v.load(b, (*batch, i, j))
        value = b.select(good, value, like(value, float("nan")))
        self.vectors.store(b, (*batch, i, at), value)


RULES = {"eigh": eigh}
