"""Products by the threads of a block.

An operand of a product that does not change over time (a recurrent weight) is loaded
before the first step: each thread keeps the numbers it will need in registers, and
what does not fit there in the memory of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, add, scale
from onescan.emit.convert import convert, rounded
from onescan.emit.reduce import KINDS
from onescan.emit.terms import addition, multiply_add
from onescan.loop import Atom, Equation, LeaveToXla
from onescan.targets.nvidia.all_reduce import all_reduced, kept_as, partial_of
from onescan.targets.nvidia.barriers import WARP
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_reductions import Place, repeat, sums
from onescan.targets.nvidia.flat_index import flattened, unflattened
from onescan.targets.nvidia.shares import stays_home

#: numbers of a contraction that one load from shared memory brings
TOGETHER = 4
#: terms of a product that is computed where it is pulled
FEW = 4
#: weights that may be read again in every step
SMALL = 16384
#: rows whose sums one thread keeps at a time
ROWS = 4

Taker = Callable[[ty.Value, Place, Place], ty.Value]
Weight = Callable[[], ty.Value]  # reads a weight, wherever it is kept


def dot_general(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    x, y = map(e.once, operands)
    shape, dtype = e.plan.local_shape(eqn.outvars[0]), eqn.outvars[0].aval.dtype
    if 0 in shape:
        return [e.fresh(eqn.outvars[0])]
    (cx, cy), (bx, by) = eqn.params["dimension_numbers"]
    left = Side(x, list(cx), list(bx))
    right = Side(y, list(cy), list(by))
    together = e.belong_to_several(eqn.invars[0], cx)
    steady = (x.steady or y.steady) and not together
    if steady and prod(left.sizes) <= FEW and e.body.uses[eqn.outvars[0]] == 1:
        return [_where_pulled(e, eqn, left, right)]
    if not bx and ty.is_float(dtype) and steady and 0 not in left.sizes:
        weights = y.steady and (not x.steady or prod(y.shape) >= prod(x.shape))
        pair = (right, left) if weights else (left, right)
        found = _Weights(e, eqn.outvars[0], *pair, swapped=weights).emit()
        if found is not None:
            return [found]
    target = e.fresh(eqn.outvars[0])
    start = ir.Constant(ty.register_type(target.dtype), None)
    take, combine = _taker(e, target.dtype, left, right), addition(target.dtype)
    mine = partial_of(e, target) if together else target
    sums(e, mine, left.sizes, start, take, combine, x.cost + y.cost)
    return [all_reduced(e, mine, target, combine) if together else target]


def _taker(e: BlockEmitter, dtype: Any, left: Side, right: Side) -> Taker:
    """Adds a term of an element of a product."""
    batch, free = len(left.batch), len(left.batch) + len(left.free)

    def take(total: ty.Value, place: Place, term: Place) -> ty.Value:
        a = left.at(place[:batch], place[batch:free], term)
        c = right.at(place[:batch], place[free:], term)
        a = convert(e.b, a, left.array.dtype, dtype)
        c = convert(e.b, c, right.array.dtype, dtype)
        return multiply_add(e.b, dtype, a, c, total)

    return take


def _where_pulled(e: BlockEmitter, eqn: Equation, left: Side, right: Side) -> Array:
    """A product of so few terms that who needs an element of it sums them himself.

    LLVM loads the weights for that once, before the first step.
    """
    out = eqn.outvars[0]
    take = _taker(e, out.aval.dtype, left, right)
    terms = list(product(*map(range, left.sizes)))

    def at(place: Place) -> ty.Value:
        total: ty.Value = ir.Constant(ty.register_type(out.aval.dtype), None)
        for term in terms:
            total = take(total, place, term)
        return rounded(e.b, total, out.aval.dtype)

    return e.lazy(out, at, [left.array, right.array], cost=2 * len(terms))


class Side:
    """An operand of a product, and which of its dimensions do what."""

    def __init__(self, array: Array, contracted: list[int], batch: list[int]) -> None:
        self.array, self.contracted, self.batch = array, contracted, batch
        rank = range(len(array.shape))
        self.free = [i for i in rank if i not in contracted and i not in batch]

    @property
    def sizes(self) -> list[int]:
        return [self.array.shape[i] for i in self.contracted]

    @property
    def shape(self) -> list[int]:
        return [self.array.shape[i] for i in self.free]

    def at(self, batch: Place, free: Place, contracted: Place) -> ty.Value:
        where: dict[int, Index] = dict(zip(self.batch, batch, strict=True))
        where.update(zip(self.free, free, strict=True))
        where.update(zip(self.contracted, contracted, strict=True))
        return self.array.at(tuple(where[i] for i in range(len(where))))


class _Weights:
    """A product with an operand that is the same in every step.

    Each thread has some columns of it, and of those one part of the terms; a warp has
    one part, so that its threads read the same numbers of the other operand.  Where
    that leaves threads over, they divide the rows.  What the parts add up to is left
    to who pulls the result.
    """

    def __init__(
        self, e: BlockEmitter, var: Atom, fixed: Side, moving: Side, swapped: bool
    ) -> None:
        self.e, self.var, self.fixed, self.moving = e, var, fixed, moving
        self.swapped = swapped  # whether the columns are the last dimensions
        self.dtype = np.dtype(var.aval.dtype)
        self.columns, self.rows = prod(fixed.shape), prod(moving.shape)
        self.terms = prod(fixed.sizes)
        self.kind = ty.register_type(self.dtype)
        # each block of a team has its share of the columns, or its threads have
        shared_out = e.is_shared_out(e.plan.local_shape(var))
        self.out = shared_out and swapped and len(fixed.free) == 1
        self.threads, self.thread = e.threads, e.thread
        if self.out:
            self.threads, self.thread = e.block, e.here
        warps = self.threads // WARP
        options = [n for n in range(1, warps + 1) if warps % n == 0]
        options = [n for n in options if n * TOGETHER <= self.terms or n == 1]
        self.parts = min(options, key=self._cost)
        self.chunks = self._chunks(self.parts)
        self.teams = self._row_teams()

    def _chunks(self, parts: int) -> int:
        """Groups of terms that one thread has of each of its columns."""
        return -(-self.terms // (TOGETHER * parts))

    @property
    def own_columns(self) -> int:
        """Columns of this block."""
        return self.columns // self.e.team if self.out else self.columns

    def _mine(self, parts: int) -> int:
        """Columns of one thread."""
        return -(-self.own_columns * parts // self.threads)

    def _row_teams(self) -> int:
        """Into how many shares the rows are divided."""
        over = self.threads // self.parts // self.own_columns
        return next(
            n for n in (32, 16, 8, 4, 2, 1) if n <= max(over, 1) and self.rows % n == 0
        )

    def _cost(self, parts: int) -> tuple[int, int]:
        """Registers, then loads of the other operand and of what parts give."""
        chunks, mine = self._chunks(parts), self._mine(parts)
        return mine * chunks * TOGETHER, chunks + parts

    def emit(self) -> Array | None:
        """The product, or None where the weights do not fit."""
        e = self.e
        words = 2 if self.kind == ty.F64 else 1
        numbers = self._mine(self.parts) * self.chunks * TOGETHER * words
        if not e.fits(numbers):
            if self.columns * self.terms > SMALL:
                raise LeaveToXla(
                    f"a product's {self.columns * self.terms} weights do not fit into "
                    "one multiprocessor of the GPU"
                )
            return None
        with e.beforehand():
            self._place()
            weights = self._loaded(e.in_registers(numbers) // words)
        shape = (self.parts, self.rows, self.columns)
        memory = e.scratch(shape, (None,) * 3, kept_as(self.dtype))
        if self.out and stays_home(e.body.jaxpr, self.var, e.unit):
            memory = e.at_home(memory)
        self.sums = memory
        with e.phase():
            whole, left = divmod(self.rows // self.teams, ROWS)
            repeat(e, whole, lambda k: self._some(scale(e.b, k, ROWS), ROWS, weights))
            if left:
                self._some(whole * ROWS, left, weights)
        return self._result()

    def _place(self) -> None:
        """Which columns and terms this thread has."""
        e, b = self.e, self.e.b
        groups = self.threads // self.parts // self.teams
        size = ir.Constant(ty.I32, groups)
        thread = b.trunc(self.thread, ty.I32)
        team = b.udiv(thread, size)
        group = b.zext(b.urem(thread, size), ty.I64)
        teams = ir.Constant(ty.I32, self.teams)
        self.part = b.zext(b.udiv(team, teams), ty.I64)
        rows = ir.Constant(ty.I64, self.rows // self.teams)
        self.first_row = b.mul(b.zext(b.urem(team, teams), ty.I64), rows)
        length = ir.Constant(ty.I64, self.chunks * TOGETHER)
        self.first = b.mul(self.part, length)
        self.mine = []
        columns = self.own_columns
        last = ir.Constant(ty.I64, columns - 1)
        for j in range(self._mine(self.parts)):
            column: Any = b.add(group, ir.Constant(ty.I64, j * groups))
            if (j + 1) * groups > columns:  # again the last one
                below = b.icmp_unsigned("<", column, last)
                column = b.select(below, column, last)
            self.mine.append(e.position(column) if self.out else column)

    def _term(self, chunk: int, r: int) -> tuple[Index, ty.Value | None] | None:
        """Term r of a chunk and whether there is one, where that is not certain."""
        offset, b = chunk * TOGETHER + r, self.e.b
        if self.parts == 1:
            return (offset, None) if offset < self.terms else None
        k = add(b, self.first, offset)
        if offset + (self.parts - 1) * self.chunks * TOGETHER < self.terms:
            return k, None
        last = ir.Constant(ty.I64, self.terms - 1)
        inside = b.icmp_unsigned("<=", k, last)
        return b.select(inside, k, last), inside

    def _pull(self, side: Side, free: Index, term: Any) -> ty.Value:
        b = self.e.b
        place = unflattened(b, free, side.shape)
        index = unflattened(b, term[0], side.sizes)
        value = side.at((), place, index)
        value = convert(b, value, side.array.dtype, self.dtype)
        if term[1] is None:
            return value
        return b.select(term[1], value, ir.Constant(self.kind, None))

    def _loaded(self, most: int) -> dict[tuple[int, int, int], Weight]:
        """Every weight of this thread: in a register, or how to read it."""
        e, weights = self.e, {}
        for chunk in range(self.chunks):
            for j, column in enumerate(self.mine):
                terms = [self._term(chunk, r) for r in range(TOGETHER)]
                values = [t and self._pull(self.fixed, column, t) for t in terms]
                if len(weights) + TOGETHER <= most:
                    kept: list[Any] = [v and (lambda v=v: v) for v in values]
                else:
                    memory = e.own_room(TOGETHER, kept_as(self.dtype))
                    for r, value in enumerate(values):
                        if value is not None:
                            memory.store(e.b, (e.here, r), value)
                    kept = [
                        v and (lambda r=r, memory=memory: memory.load(e.b, (e.here, r)))
                        for r, v in enumerate(values)
                    ]
                for r, weight in enumerate(kept):
                    if weight is not None:
                        weights[j, chunk, r] = weight
        return weights

    def _some(self, first: Index, count: int, weights: dict[Any, Weight]) -> None:
        """The sums of a few rows."""
        b = self.e.b
        combine = KINDS["reduce_sum"][0]
        turns = TOGETHER if count * len(self.mine) < 4 else 1
        if self.teams > 1:
            first = add(b, self.first_row, first)
        rows = [add(b, first, k) for k in range(count)]
        totals: dict[Any, ty.Value] = {}
        for chunk in range(self.chunks):
            terms = [self._term(chunk, r) for r in range(TOGETHER)]
            known = {
                (j, r): weights[j, chunk, r]()
                for j in range(len(self.mine))
                for r in range(TOGETHER)
                if (j, chunk, r) in weights
            }
            for i, row in enumerate(rows):
                values = [t and self._pull(self.moving, row, t) for t in terms]
                for (j, r), weight in known.items():
                    key = (i, j, r % turns)
                    held = totals.get(key, ir.Constant(self.kind, None))
                    totals[key] = multiply_add(b, self.dtype, weight, values[r], held)
        for i, row in enumerate(rows):
            for j, column in enumerate(self.mine):
                found = [totals[i, j, r] for r in range(turns) if (i, j, r) in totals]
                total = found[0]
                for other in found[1:]:
                    total = combine(b, self.dtype, total, other)
                self.sums.store(b, (self.part, row, column), total)

    def _result(self) -> Array:
        """The sums of the parts, added where they are pulled."""
        e, memory, split = self.e, self.sums, len(self.moving.free)
        combine = KINDS["reduce_sum"][0]
        if not self.swapped:
            split = len(self.fixed.free)

        def at(index: Place) -> ty.Value:
            b = e.b
            first, second = index[:split], index[split:]
            free = (first, second) if self.swapped else (second, first)
            row = flattened(b, free[0], self.moving.shape)
            column = flattened(b, free[1], self.fixed.shape)
            total = memory.load(b, (0, row, column))
            for part in range(1, self.parts):
                total = combine(
                    b, self.dtype, total, memory.load(b, (part, row, column))
                )
            return rounded(b, total, self.dtype)

        shape = e.plan.local_shape(self.var)
        return Array(
            shape=shape,
            dtype=self.dtype,
            at=at,
            reads=frozenset([memory]),
            cost=2 * self.parts,
            lanes=e.plan.local_lanes(self.var),
        )


RULES = {"dot_general": dot_general}
