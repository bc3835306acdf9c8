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

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, add, scale
from onescan.emit.block import WARP, BlockEmitter, function_of, unflattened
from onescan.emit.convert import convert, rounded
from onescan.emit.dot import _multiply_add
from onescan.emit.reduce import KINDS, Combine

#: numbers of a contraction that one load from shared memory brings
TOGETHER = 4
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
    e.sync()
    b = e.b
    part = b.and_(e.thread, ir.Constant(ty.I64, parts - 1))
    group = b.lshr(e.thread, ir.Constant(ty.I64, parts.bit_length() - 1))

    def one(flat: ty.Value | int) -> None:
        place = unflattened(b, flat, target.shape)
        total = _part_of(e, target.dtype, sizes, parts, part, start, place, take, combine)
        total = joined(e, total, combine, target.dtype, parts)
        memory.store(b, place, rounded(b, total, target.dtype))

    with e.by_itself():
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
    target = e.fresh(eqn.outvars[0])
    if 0 in target.shape:
        return [target]
    (cx, cy), (bx, by) = eqn.params["dimension_numbers"]
    left = Side(x, list(cx), list(bx))
    right = Side(y, list(cy), list(by))
    if not bx and ty.is_float(target.dtype) and (x.steady or y.steady):
        weights = y.steady and (not x.steady or prod(y.shape) >= prod(x.shape))
        pair = (right, left) if weights else (left, right)
        if _Weights(e, target, *pair, swapped=weights).emit():
            return [target]
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

    Each thread has columns of it, `parts` neighbours share a column: thread `part`
    has the terms k with (k // TOGETHER) % parts == part.
    """

    def __init__(
        self, e: BlockEmitter, target: Array, fixed: Side, moving: Side, swapped: bool
    ) -> None:
        self.e, self.target, self.fixed, self.moving = e, target, fixed, moving
        self.swapped = swapped  # whether the columns are the last dimensions
        self.columns, self.rows = prod(fixed.shape), prod(moving.shape)
        self.terms = prod(fixed.sizes)
        self.kind = ty.register_type(target.dtype)
        options = [1 << k for k in range(6) if (TOGETHER << k) <= self.terms or not k]
        self.parts = min(options, key=lambda parts: (self._numbers(parts), parts))
        self.chunks = self._chunks(self.parts)

    def _chunks(self, parts: int) -> int:
        """Groups of terms that one thread has of each of its columns."""
        return -(-self.terms // (TOGETHER * parts))

    def _mine(self, parts: int) -> int:
        """Columns of one thread."""
        return -(-self.columns * parts // self.e.threads)

    def _numbers(self, parts: int) -> int:
        return self._mine(parts) * self._chunks(parts) * TOGETHER

    def emit(self) -> bool:
        """The product, or False where the weights do not fit."""
        e = self.e
        words = 2 if self.kind == ty.F64 else 1
        numbers = self._numbers(self.parts) * words
        if numbers > e.registers:
            return False
        e.registers -= numbers
        with e.beforehand():
            self._place()
            weights = self._loaded()
        e.sync()
        with e.by_itself():
            whole, left = divmod(self.rows, ROWS)
            _repeat(e, whole, lambda k: self._some(scale(e.b, k, ROWS), ROWS, weights))
            if left:
                self._some(whole * ROWS, left, weights)
        return True

    def _place(self) -> None:
        """Which columns and terms this thread has."""
        e, b = self.e, self.e.b
        self.part = b.and_(e.thread, ir.Constant(ty.I64, self.parts - 1))
        bits = self.parts.bit_length() - 1
        self.group = b.lshr(e.thread, ir.Constant(ty.I64, bits))
        self.groups = e.threads // self.parts
        self.first = b.mul(self.part, ir.Constant(ty.I64, TOGETHER))
        self.mine = []
        last = ir.Constant(ty.I64, self.columns - 1)
        for j in range(self._mine(self.parts)):
            column: Any = b.add(self.group, ir.Constant(ty.I64, j * self.groups))
            if (j + 1) * self.groups > self.columns:  # again the last one
                below = b.icmp_unsigned("<", column, last)
                column = b.select(below, column, last)
            self.mine.append(column)

    def _term(self, chunk: int, r: int) -> tuple[Index, ty.Value | None] | None:
        """Term r of a chunk and whether there is one, where that is not certain."""
        offset = chunk * TOGETHER * self.parts + r
        if self.parts == 1:
            return (offset, None) if offset < self.terms else None
        k = add(self.e.b, self.first, offset)
        if offset + (self.parts - 1) * TOGETHER < self.terms:
            return k, None
        last = ir.Constant(ty.I64, self.terms - 1)
        inside = self.e.b.icmp_unsigned("<=", k, last)
        return self.e.b.select(inside, k, last), inside

    def _pull(self, side: Side, free: Index, term: Any) -> ty.Value:
        b = self.e.b
        place = unflattened(b, free, side.shape)
        index = unflattened(b, term[0], side.sizes)
        value = side.at((), place, index)
        value = convert(b, value, side.array.dtype, self.target.dtype)
        if term[1] is None:
            return value
        return b.select(term[1], value, ir.Constant(self.kind, None))

    def _loaded(self) -> dict[tuple[int, int, int], ty.Value]:
        weights = {}
        for j, column in enumerate(self.mine):
            for chunk in range(self.chunks):
                for r in range(TOGETHER):
                    if term := self._term(chunk, r):
                        value = self._pull(self.fixed, column, term)
                        weights[j, chunk, r] = value
        return weights

    def _some(self, first: Index, count: int, weights: dict[Any, ty.Value]) -> None:
        """The sums of a few rows."""
        e, b, dtype = self.e, self.e.b, self.target.dtype
        combine = KINDS["reduce_sum"][0]
        turns = TOGETHER if count * len(self.mine) < 4 else 1
        rows = [add(b, first, k) for k in range(count)]
        totals: dict[Any, ty.Value] = {}
        for chunk in range(self.chunks):
            terms = [self._term(chunk, r) for r in range(TOGETHER)]
            for i, row in enumerate(rows):
                values = [t and self._pull(self.moving, row, t) for t in terms]
                for j in range(len(self.mine)):
                    for r, value in enumerate(values):
                        if value is None:
                            continue
                        key, weight = (i, j, r % turns), weights[j, chunk, r]
                        held = totals.get(key, ir.Constant(self.kind, None))
                        totals[key] = _multiply_add(b, dtype, weight, value, held)
        for i, row in enumerate(rows):
            for j, column in enumerate(self.mine):
                found = [totals[i, j, r] for r in range(turns) if (i, j, r) in totals]
                total = found[0]
                for other in found[1:]:
                    total = combine(b, dtype, total, other)
                total = joined(e, total, combine, dtype, self.parts)
                self._store(row, j, column, total)

    def _store(self, row: Index, j: int, column: ty.Value, total: ty.Value) -> None:
        b = self.e.b
        memory: Any = self.target.memory
        places = (
            unflattened(b, row, self.moving.shape),
            unflattened(b, column, self.fixed.shape),
        )
        place = sum(places if self.swapped else places[::-1], ())
        # neighbours that share a column store the same number in the same place
        memory.store(b, place, rounded(b, total, self.target.dtype))


RULES = {**dict.fromkeys(KINDS, reduction), "dot_general": dot_general}
