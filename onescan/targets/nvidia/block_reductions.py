"""Reductions by the threads of a block.

Several threads of a warp share one sum where there are more threads than sums; each
adds its part in order, and the parts are joined by exchanges between the threads, so
that every one of them knows the result.  The order depends on shapes and plan alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arg_extreme import arg_extreme as by_one_thread
from onescan.emit.arg_extreme import place_of
from onescan.emit.arrays import Array, Index, add, scale
from onescan.emit.comparisons import compare, minimum
from onescan.emit.convert import rounded
from onescan.emit.emitter import CHEAP
from onescan.emit.math.nvvm import function_of
from onescan.emit.reduce import KINDS, Combine
from onescan.loop import Equation
from onescan.plan.layout import power_below
from onescan.targets.nvidia.all_reduce import (
    all_reduced,
    in_pairs,
    kept_as,
    partial_of,
)
from onescan.targets.nvidia.barriers import WARP
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.flat_index import unflattened

#: operations of a sum from which it pays that several warps share it and meet once
#: more, and what it takes to read and add a term
LONG, TAKEN = 8192, 4
#: terms of one thread from which it reads several at once, which wait for each other
#: just once, and how many times the sums that it has at the same time
MANY, AT_ONCE = 32, 4


def sharing(e: BlockEmitter, sums: int, terms: int) -> int:
    """How many neighbours share a sum."""
    return min(WARP, power_below(e.threads // max(sums, 1)), power_below(terms))


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


@dataclass(frozen=True)
class _Terms:
    """The terms of each sum, and what is done with them."""

    sizes: list[int]
    start: ty.Value
    take: Take
    combine: Combine
    cost: int  # of a term, beside taking it

    @property
    def count(self) -> int:
        return prod(self.sizes)


def sums(
    e: BlockEmitter,
    target: Array,
    sizes: list[int],
    start: ty.Value,
    take: Take,
    combine: Combine,
    cost: int = 0,
) -> None:
    """For each place of `target`, take every term below `sizes` in turn.

    ``take(total, place, term)`` gives a total with one term more; partial totals
    are combined in pairs.  `cost` is that of a term, beside taking it.
    """
    terms = _Terms(sizes, start, take, combine, cost)
    warps = _warps(e, prod(target.shape), terms)
    if warps > 1:
        _sums_by_warps(e, target, terms, warps)
    else:
        _sums_by_neighbours(e, target, terms)


def _sums_by_neighbours(e: BlockEmitter, target: Array, terms: _Terms) -> None:
    """Sums of which some threads of a warp have a part each."""
    memory = target.memory
    assert memory is not None
    count = prod(target.shape)
    parts = sharing(e, count, terms.count)
    groups = count if e.is_private(memory) else e.threads // parts
    b = e.b
    part = b.and_(e.thread, ir.Constant(ty.I64, parts - 1))
    group = b.lshr(e.thread, ir.Constant(ty.I64, parts.bit_length() - 1))

    def one(flat: ty.Value | int) -> None:
        place = unflattened(b, flat, target.shape)
        total = _part_of(e, target.dtype, terms, parts, part, place)
        total = joined(e, total, terms.combine, target.dtype, parts)
        memory.store(b, place, rounded(b, total, target.dtype))

    with e.phase():
        if e.is_private(memory):
            one(0)
            return
        rounds, left = divmod(count, groups)
        repeat(e, rounds, lambda k: one(add(b, group, scale(b, k, groups))))
        if left:
            # those without a sum do the last one again, to take part in exchanges
            flat = b.add(group, ir.Constant(ty.I64, rounds * groups))
            last = ir.Constant(ty.I64, count - 1)
            one(b.select(b.icmp_unsigned("<", flat, last), flat, last))


def _warps(e: BlockEmitter, count: int, terms: _Terms) -> int:
    """How many warps share a sum: several where few sums leave the others idle.

    A single number would be summed by each warp for itself.
    """
    if e.apart or terms.count * (TAKEN + terms.cost) < LONG:
        return 1
    free = power_below(e.threads // (WARP * count))
    return min(free, power_below(terms.count // WARP))


def _sums_by_warps(e: BlockEmitter, target: Array, terms: _Terms, warps: int) -> None:
    """Sums of which so many warps have a part each, and then those of the parts."""
    b, dtype, count = e.b, target.dtype, prod(target.shape)
    shape, lanes = (*target.shape, warps), (*target.lanes, None)
    memory = e.scratch(shape, lanes, kept_as(dtype))
    parts = warps * WARP
    part = b.and_(e.thread, ir.Constant(ty.I64, parts - 1))
    group: Any = b.lshr(e.thread, ir.Constant(ty.I64, parts.bit_length() - 1))
    warp = b.lshr(part, ir.Constant(ty.I64, WARP.bit_length() - 1))
    with e.phase():
        if count < e.threads // parts:  # the others do the last one again
            last = ir.Constant(ty.I64, count - 1)
            group = b.select(b.icmp_unsigned("<", group, last), group, last)
        place = unflattened(b, group, target.shape)
        total = _part_of(e, dtype, terms, parts, part, place)
        total = joined(e, total, terms.combine, dtype, WARP)
        memory.store(b, (*place, warp), total)

    def of_parts(total: ty.Value, place: Place, term: Place) -> ty.Value:
        return terms.combine(e.b, dtype, total, memory.load(e.b, (*place, *term)))

    sums(e, target, [warps], terms.start, of_parts, terms.combine)


def repeat(e: BlockEmitter, rounds: int, body: Callable[[Index], None]) -> None:
    if rounds > 4:
        with e.loop(rounds) as k:
            body(k)
    else:
        for k in range(rounds):
            body(k)


def _part_of(
    e: BlockEmitter,
    dtype: Any,
    terms: _Terms,
    parts: int,
    part: ty.Value,
    place: Place,
) -> ty.Value:
    """One thread's part of a sum: every term whose number is `part` modulo `parts`."""
    b, start = e.b, terms.start
    each, left = divmod(terms.count, parts)
    turns = next(k for k in (4, 2, 1) if each >= 2 * k or k == 1)
    several = turns * AT_ONCE if terms.cost <= CHEAP and each >= MANY else turns
    cells = [e.entry.alloca(start.type) for _ in range(turns)]
    for cell in cells:
        b.store(start, cell)

    def term(number: Index, cell: ty.Value) -> None:
        flat = add(b, part, scale(b, number, parts)) if parts > 1 else number
        index = unflattened(b, flat, terms.sizes)
        total = terms.take(b.load(cell), place, index)
        b.store(total, cell)

    def visit(index: Place) -> None:
        for k in range(several):
            term(add(b, scale(b, index[0], several), k), cells[k % turns])

    e.for_each([each // several], visit, 2 * several)
    for number in range(each - each % several, each):
        term(number, cells[number % turns])
    if left:
        with b.if_then(e.below(part, left)):
            term(each, cells[0])
    return in_pairs(e, [b.load(cell) for cell in cells], terms.combine, dtype)


def reduction(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    combine, neutral = KINDS[eqn.primitive.name]
    axes = sorted(eqn.params["axes"])
    dtype = np.dtype(out.aval.dtype)
    target = e.fresh(out)
    if 0 in target.shape:
        return [target]
    start = ty.constant(ty.register_type(dtype), neutral(dtype))

    def take(total: ty.Value, place: Place, term: Place) -> ty.Value:
        kept, gone = iter(place), iter(term)
        rank = range(len(x.shape))
        index = tuple(next(gone) if i in axes else next(kept) for i in rank)
        return combine(e.b, dtype, total, x.at(index))

    sizes = [x.shape[i] for i in axes]
    together = e.belong_to_several(eqn.invars[0], axes)
    mine = partial_of(e, target) if together else target
    sums(e, mine, sizes, start, take, combine, x.cost)
    return [all_reduced(e, mine, target, combine) if together else target]


def arg_extreme(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """The first position of the largest or smallest, which is found before, or NaN."""
    (x,), (out,) = operands, eqn.outvars
    (axis,) = eqn.params["axes"]
    n = x.shape[axis]
    if e.apart or e.team > 1 or n < WARP or prod(x.shape) >= n * e.threads:
        return by_one_thread(e, eqn, operands)
    name = "reduce_max" if eqn.primitive.name == "argmax" else "reduce_min"
    combine, neutral = KINDS[name]
    x, target, number = e.once(x), e.fresh(out), np.dtype(out.aval.dtype)
    memory = e.scratch(target.shape, target.lanes, x.dtype)
    best = e.stored(memory, target.shape, target.lanes)
    b, none = e.b, ty.constant(ty.register_type(number), np.iinfo(number).max)

    def term_at(place: Place, term: Place) -> ty.Value:
        return x.at((*place[:axis], *term, *place[axis:]))

    def take(total: ty.Value, place: Place, term: Place) -> ty.Value:
        return combine(b, x.dtype, total, term_at(place, term))

    def first(total: ty.Value, place: Place, term: Place) -> ty.Value:
        value, found = term_at(place, term), best.at(place)
        same = compare(b, x.dtype, "==", value, found)
        if ty.is_float(x.dtype):  # the largest is NaN where one is
            same = b.or_(same, b.fcmp_unordered("uno", value, value))
        here = place_of(e, term[0], number)
        return minimum(b, number, total, b.select(same, here, none))

    start = ty.constant(ty.register_type(x.dtype), neutral(x.dtype))
    sums(e, best, [n], start, take, combine, x.cost)
    sums(e, target, [n], none, first, minimum, x.cost)
    return [target]


RULES = dict.fromkeys(KINDS, reduction) | dict.fromkeys(
    ("argmax", "argmin"), arg_extreme
)
