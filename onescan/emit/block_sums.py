"""Reductions and products by the threads of a block.

Several threads of a warp share one sum where there are more threads than sums; each
adds its part in order, and the parts are joined by exchanges between the threads, so
that every one of them knows the result.  The order depends on shapes and plan alone.

An operand of a product that does not change over time (a recurrent weight) is loaded
before the first step: each thread keeps the numbers it will need in registers, and
what does not fit there in the memory of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import structural
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, add, scale
from onescan.emit.block import WARP, BlockEmitter, flattened, function_of, unflattened
from onescan.emit.convert import convert, rounded
from onescan.emit.dot import _multiply_add
from onescan.emit.reduce import KINDS, Combine
from onescan.loop import LeaveToXla
from onescan.plan.home import stays_home

#: numbers of a contraction that one load from shared memory brings
TOGETHER = 4
#: weights that may be read again in every step
SMALL = 16384
#: rows whose sums one thread keeps at a time
ROWS = 4


def _power_below(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def sharing(e: BlockEmitter, sums: int, terms: int) -> int:
    """How many neighbours share a sum."""
    return min(WARP, _power_below(e.threads // max(sums, 1)), _power_below(terms))


def joined(
    e: BlockEmitter, value: ty.Value, combine: Combine, dtype: Any, parts: int
) -> ty.Value:
    """The values of that many neighbours combined, the same in each of them."""
    step = parts // 2
    while step:
        value = combine(e.b, dtype, value, _exchanged(e, value, step))
        step //= 2
    return value


def _exchanged(e: BlockEmitter, value: ty.Value, step: int) -> ty.Value:
    """The value of the thread whose number differs in one bit."""
    b, kind = e.b, value.type
    if isinstance(kind, ir.DoubleType):
        return b.bitcast(_exchanged(e, b.bitcast(value, ty.I64), step), kind)
    if isinstance(kind, ir.FloatType):
        return b.bitcast(_exchanged(e, b.bitcast(value, ty.I32), step), kind)
    if kind.width == 64:
        half = ir.Constant(ty.I64, 32)
        low, high = b.trunc(value, ty.I32), b.trunc(b.lshr(value, half), ty.I32)
        low, high = (b.zext(_exchanged(e, v, step), ty.I64) for v in (low, high))
        return b.or_(low, b.shl(high, half))
    if kind.width < 32:
        return b.trunc(_exchanged(e, b.zext(value, ty.I32), step), kind)
    name = "llvm.nvvm.shfl.sync.bfly.i32"
    shuffle = function_of(b.module, name, ir.FunctionType(ty.I32, [ty.I32] * 4))
    constants = [ir.Constant(ty.I32, n) for n in (step, WARP - 1)]
    return b.call(shuffle, [ir.Constant(ty.I32, -1), value, *constants])


Place = tuple[Index, ...]
Take = Callable[[ty.Value, Place, Place], ty.Value]


def sums(
    e: BlockEmitter,
    target: Array,
    sizes: list[int],
    start: ty.Value,
    take: Take,
    combine: Combine,
) -> None:
    """For each place of `target`, take every term below `sizes` in turn.

    ``take(total, place, term)`` gives a total with one term more; partial totals
    are combined in pairs.
    """
    memory = target.memory
    assert memory is not None
    count, terms = prod(target.shape), prod(sizes)
    parts = sharing(e, count, terms)
    groups = count if e.is_private(memory) else e.threads // parts
    b = e.b
    part = b.and_(e.thread, ir.Constant(ty.I64, parts - 1))
    group = b.lshr(e.thread, ir.Constant(ty.I64, parts.bit_length() - 1))

    def one(flat: ty.Value | int) -> None:
        place = unflattened(b, flat, target.shape)
        total = _part_of(
            e, target.dtype, sizes, parts, part, start, place, take, combine
        )
        total = joined(e, total, combine, target.dtype, parts)
        memory.store(b, place, rounded(b, total, target.dtype))

    with e.phase():
        if e.is_private(memory):
            one(0)
            return
        rounds, left = divmod(count, groups)
        _repeat(e, rounds, lambda k: one(add(b, group, scale(b, k, groups))))
        if left:
            # those without a sum do the last one again, to take part in exchanges
            flat = b.add(group, ir.Constant(ty.I64, rounds * groups))
            last = ir.Constant(ty.I64, count - 1)
            one(b.select(b.icmp_unsigned("<", flat, last), flat, last))


def _repeat(e: BlockEmitter, rounds: int, body: Callable[[Index], None]) -> None:
    if rounds > 4:
        with e.loop(rounds) as k:
            body(k)
    else:
        for k in range(rounds):
            body(k)


def _part_of(
    e: BlockEmitter,
    dtype: Any,
    sizes: list[int],
    parts: int,
    part: ty.Value,
    start: ty.Value,
    place: Place,
    take: Take,
    combine: Combine,
) -> ty.Value:
    """One thread's part of a sum: every term whose number is `part` modulo `parts`."""
    b, terms = e.b, prod(sizes)
    each, left = divmod(terms, parts)
    turns = next(k for k in (4, 2, 1) if each >= 2 * k or k == 1)
    cells = [e.entry.alloca(start.type) for _ in range(turns)]
    for cell in cells:
        b.store(start, cell)

    def term(number: Index, cell: ty.Value) -> None:
        flat = add(b, part, scale(b, number, parts)) if parts > 1 else number
        total = take(b.load(cell), place, unflattened(b, flat, sizes))
        b.store(total, cell)

    def visit(index: Place) -> None:
        for turn in range(turns):
            term(add(b, scale(b, index[0], turns), turn), cells[turn])

    e.for_each([each // turns], visit, 2 * turns)
    for number in range(each - each % turns, each):
        term(number, cells[number % turns])
    if left:
        with b.if_then(e.below(part, left)):
            term(each, cells[0])
    totals = [b.load(cell) for cell in cells]
    while len(totals) > 1:
        half = len(totals) // 2
        pairs = zip(totals[:half], totals[half:], strict=True)
        totals = [combine(b, dtype, x, y) for x, y in pairs]
    return totals[0]


def reduction(e: BlockEmitter, eqn: Any, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    combine, neutral = KINDS[eqn.primitive.name]
    axes = sorted(eqn.params["axes"])
    dtype = np.dtype(out.aval.dtype)
    target = e.fresh(out)
    start = ty.constant(ty.register_type(dtype), neutral(dtype))

    def take(total: ty.Value, place: Place, term: Place) -> ty.Value:
        kept, gone = iter(place), iter(term)
        rank = range(len(x.shape))
        index = tuple(next(gone) if i in axes else next(kept) for i in rank)
        return combine(e.b, dtype, total, x.at(index))

    if 0 not in target.shape:
        sums(e, target, [x.shape[i] for i in axes], start, take, combine)
    return [target]


def dot_general(e: BlockEmitter, eqn: Any, operands: list[Array]) -> list[Array]:
    x, y = map(e.once, operands)
    shape, dtype = e.plan.local_shape(eqn.outvars[0]), eqn.outvars[0].aval.dtype
    if 0 in shape:
        return [e.fresh(eqn.outvars[0])]
    (cx, cy), (bx, by) = eqn.params["dimension_numbers"]
    left = Side(x, list(cx), list(bx))
    right = Side(y, list(cy), list(by))
    if not bx and ty.is_float(dtype) and (x.steady or y.steady):
        weights = y.steady and (not x.steady or prod(y.shape) >= prod(x.shape))
        pair = (right, left) if weights else (left, right)
        product = _Weights(e, eqn.outvars[0], *pair, swapped=weights).emit()
        if product is not None:
            return [product]
    target = e.fresh(eqn.outvars[0])
    batch, free = len(bx), len(bx) + len(left.free)

    def take(total: ty.Value, place: Place, term: Place) -> ty.Value:
        a = left.at(place[:batch], place[batch:free], term)
        c = right.at(place[:batch], place[free:], term)
        dtype = target.dtype
        a, c = convert(e.b, a, x.dtype, dtype), convert(e.b, c, y.dtype, dtype)
        return _multiply_add(e.b, dtype, a, c, total)

    start = ir.Constant(ty.register_type(target.dtype), None)
    sums(e, target, left.sizes, start, take, KINDS["reduce_sum"][0])
    return [target]


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
    one part, so that its threads read the same numbers of the other operand.  What
    the parts add up to is left to who pulls the result.
    """

    def __init__(
        self, e: BlockEmitter, var: Any, fixed: Side, moving: Side, swapped: bool
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

    def _chunks(self, parts: int) -> int:
        """Groups of terms that one thread has of each of its columns."""
        return -(-self.terms // (TOGETHER * parts))

    def _mine(self, parts: int) -> int:
        """Columns of one thread."""
        columns = self.columns // self.e.team if self.out else self.columns
        return -(-columns * parts // self.threads)

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
        memory = e.scratch(shape, (None,) * 3, self._kept_as())
        if self.out and stays_home(e.body.jaxpr, self.var, e.unit):
            memory = e.at_home(memory)
        self.sums = memory
        with e.phase():
            whole, left = divmod(self.rows, ROWS)
            _repeat(e, whole, lambda k: self._some(scale(e.b, k, ROWS), ROWS, weights))
            if left:
                self._some(whole * ROWS, left, weights)
        return self._result()

    def _place(self) -> None:
        """Which columns and terms this thread has."""
        e, b = self.e, self.e.b
        self.groups = self.threads // self.parts
        size = ir.Constant(ty.I32, self.groups)
        thread = b.trunc(self.thread, ty.I32)
        self.part = b.zext(b.udiv(thread, size), ty.I64)
        group = b.zext(b.urem(thread, size), ty.I64)
        length = ir.Constant(ty.I64, self.chunks * TOGETHER)
        self.first = b.mul(self.part, length)
        self.mine = []
        columns = self.columns // e.team if self.out else self.columns
        last = ir.Constant(ty.I64, columns - 1)
        for j in range(self._mine(self.parts)):
            column: Any = b.add(group, ir.Constant(ty.I64, j * self.groups))
            if (j + 1) * self.groups > columns:  # again the last one
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
                    memory = e.own_room(TOGETHER, self._kept_as())
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

    def _kept_as(self) -> Any:
        return np.float64 if self.kind == ty.F64 else np.float32

    def _some(self, first: Index, count: int, weights: dict[Any, Weight]) -> None:
        """The sums of a few rows."""
        b = self.e.b
        combine = KINDS["reduce_sum"][0]
        turns = TOGETHER if count * len(self.mine) < 4 else 1
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
                    totals[key] = _multiply_add(b, self.dtype, weight, values[r], held)
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


Weight = Callable[[], ty.Value]


def concatenate(e: BlockEmitter, eqn: Any, operands: list[Array]) -> list[Array]:
    """Pieces of one shape are made together: they may have much in common."""
    if len({x.shape for x in operands}) > 1:
        return structural.RULES["concatenate"](e, eqn, operands)
    axis = eqn.params["dimension"]

    def place(k: int, index: Place) -> Place:
        start = k * operands[0].shape[axis]
        return (*index[:axis], add(e.b, index[axis], start), *index[axis + 1 :])

    return [_pieces(e, eqn.outvars[0], operands, place)]


def stack(e: BlockEmitter, eqn: Any, operands: list[Array]) -> list[Array]:
    axis = eqn.params["axis"] % len(eqn.outvars[0].aval.shape)
    place = lambda k, index: (*index[:axis], k, *index[axis:])
    return [_pieces(e, eqn.outvars[0], operands, place)]


def _pieces(e: BlockEmitter, var: Any, operands: list[Array], place: Any) -> Array:
    target = e.fresh(var)
    memory: Any = target.memory

    def visit(index: Place) -> None:
        for k, value in enumerate([x.at(index) for x in operands]):
            memory.store(e.b, place(k, index), value)

    e.nest(operands[0].shape, operands[0].lanes, visit)
    return target


RULES = {
    "concatenate": concatenate,
    **dict.fromkeys(KINDS, reduction),
    "dot_general": dot_general,
    "stack": stack,
}
