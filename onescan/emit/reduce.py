"""Reductions.

The order of a reduction is fixed by the shapes and the plan, never by threads:
up to four partial results take turns along the last reduced dimension and are
joined pairwise at the end; where the kernel's vectors lie along that dimension,
so are the positions of the vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.across_vectors import joined
from onescan.emit.arrays import Array, Index, Vec, add, scale
from onescan.emit.comparisons import maximum, minimum
from onescan.emit.convert import rounded
from onescan.emit.emitter import Emitter
from onescan.emit.folds import Combine, Fold, extreme, plain
from onescan.emit.math.features import NEON, has
from onescan.loop import Equation
from onescan.plan.plan import is_across

#: an element by where it is along the axes that go
Pull = Callable[[tuple[Index, ...]], ty.Value]
#: elements from which the largest is found in three parts
MANY = 6


def _add(b: ty.Builder, dtype: Any, x: ty.Value, y: ty.Value) -> ty.Value:
    return b.fadd(x, y, flags=el.CONTRACT) if ty.is_float(dtype) else b.add(x, y)


def _mul(b: ty.Builder, dtype: Any, x: ty.Value, y: ty.Value) -> ty.Value:
    return b.fmul(x, y) if ty.is_float(dtype) else b.mul(x, y)


def lowest(dtype: Any) -> float | int:
    dtype = np.dtype(dtype)
    if ty.is_float(dtype):
        return float("-inf")
    return 0 if ty.is_bool(dtype) else int(np.iinfo(dtype).min)


def highest(dtype: Any) -> float | int:
    dtype = np.dtype(dtype)
    if ty.is_float(dtype):
        return float("inf")
    return 1 if ty.is_bool(dtype) else int(np.iinfo(dtype).max)


KINDS: dict[str, tuple[Combine, Callable[[Any], float | int]]] = {
    "reduce_sum": (_add, lambda dtype: 0),
    "reduce_prod": (_mul, lambda dtype: 1),
    "reduce_max": (maximum, lowest),
    "reduce_min": (minimum, highest),
    "reduce_and": (lambda b, dtype, x, y: b.and_(x, y), lambda dtype: -1),
    "reduce_or": (lambda b, dtype, x, y: b.or_(x, y), lambda dtype: 0),
    "reduce_xor": (lambda b, dtype, x, y: b.xor(x, y), lambda dtype: 0),
}


#: a vector is folded so many times for what counts as an operation, unless there are
#: few rows: short sums are faster side by side, those of layers a third of a kernel
FOLDED, FEW_ROWS = 2, 48
#: operations that join the positions of a vector, for each number but the first that a
#: fold holds
JOINED = 12


def fold_of(b: ty.Builder, name: str, dtype: Any, elements: int) -> Fold:
    """How a reduction of that many elements goes."""
    extremes = name in ("reduce_max", "reduce_min") and ty.is_float(dtype)
    if extremes and elements >= MANY and not has(b, NEON):
        return extreme(dtype, name == "reduce_max")
    combine, neutral = KINDS[name]
    return plain(combine, ty.constant(ty.register_type(dtype), neutral(dtype)))


def reduction(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    x, axes = _as_one(e, x, sorted(eqn.params["axes"]))
    dtype = np.dtype(out.aval.dtype)
    target = e.fresh(out)
    memory = target.memory
    assert memory is not None
    rank = len(x.shape)
    lengthwise = is_lengthwise(e, x, axes)
    if lengthwise:  # what vectors lie along comes last
        along = e.plan.minor(x.shape)
        axes.sort(key=lambda i: (i == along, i))

    def full(index: tuple[Index, ...], reduced: tuple[Index, ...]) -> tuple:
        kept, gone = iter(index), dict(zip(axes, reduced, strict=True))
        return tuple(gone[i] if i in gone else next(kept) for i in range(rank))

    sizes = [x.shape[i] for i in axes]
    fold = fold_of(e.b, eqn.primitive.name, dtype, prod(sizes))

    def visit(places: list[tuple[Index, ...]]) -> None:
        pulls = [lambda r, i=i: x.at(full(i, r)) for i in places]
        if lengthwise:
            totals = lengthwise_totals(e, sizes, pulls, fold, dtype, x.cost)
        else:
            width = index_width(places[0])
            totals = accumulate(e, sizes, pulls, fold, dtype, width, x.cost)
        for index, total in zip(places, totals, strict=True):
            memory.store(e.b, index, rounded(e.b, fold.leave(e.b, total), dtype))

    vector = None if lengthwise else -1
    width = e.plan.inner_width if lengthwise else 1
    pulled = max(prod(sizes) // width, 1)
    joins = width.bit_length() // FOLDED if prod(target.shape) > FEW_ROWS else 0
    cost = max(x.cost, 1) * pulled + joins + JOINED * (len(fold.combines) - 1)
    e.nest_in_groups(target.shape, target.lanes, visit, vector, cost=cost)
    return [target]


def is_lengthwise(e: Emitter, x: Array, axes: list[int]) -> bool:
    """Whether the kernel's vectors lie along one of the axes."""
    along = e.plan.minor(x.shape)
    return (
        e.plan.inner_width > 1
        and not is_across(x.lanes)
        and along in axes
        and x.shape[along] >= 4
        and 0 not in x.shape
    )


def lengthwise_totals(
    e: Emitter, sizes: list[int], pulls: list[Pull], fold: Fold, dtype: Any, cost: int
) -> list[list[ty.Value]]:
    """The same as `accumulate`, by vectors along the last of the sizes."""
    totals = [list(fold.starts) for _ in pulls]
    for begin, count, w in e.stretches(sizes[-1]):
        blocks = [
            lambda r, pull=pull, begin=begin, w=w: pull(
                (*r[:-1], _block(e, r, begin, w))
            )
            for pull in pulls
        ]
        parts = accumulate(
            e, [*sizes[:-1], count], blocks, fold, dtype, w * (w > 1), cost
        )
        totals = [
            [
                combine(e.b, dtype, held, *joined(e.b, [number], combine, dtype))
                for combine, held, number in zip(
                    fold.combines, total, part, strict=True
                )
            ]
            for total, part in zip(totals, parts, strict=True)
        ]
    return totals


def _as_one(e: Emitter, x: Array, axes: list[int]) -> tuple[Array, list[int]]:
    """The last axes as one, if all are reduced and stand in memory without gaps."""
    first = len(x.shape) - len(axes)
    last = list(range(first, len(x.shape)))
    laned = any(x.lanes[i] for i in axes) if x.lanes else False
    if len(axes) < 2 or axes != last or laned or x.memory is None:
        return x, axes
    shape = (*x.shape[:first], prod(x.shape[first:]))
    groups = [*(([i], [i]) for i in range(first)), (last, [first])]
    memory = x.memory.reshaped(x.shape, shape, groups)
    if memory is None:
        return x, axes
    at = lambda index: memory.load(e.b, index)
    lanes = (*x.lanes[:first], None)
    flat = replace(x, shape=shape, at=at, memory=memory, lanes=lanes, cuts=())
    return replace(flat, window=None), [first]


def _block(e: Emitter, reduced: tuple[Index, ...], begin: int, width: int) -> Index:
    block = reduced[-1]
    base: Index
    if isinstance(block, int):
        base = begin + block * width
    else:
        step = e.b.mul(block, ir.Constant(ty.I64, width))  # type: ignore[arg-type]
        base = e.b.add(step, ir.Constant(ty.I64, begin))
    return Vec(base, width) if width > 1 else base


def index_width(index: tuple[Index, ...]) -> int:
    return next((i.width for i in index if isinstance(i, Vec)), 0)


def accumulate(
    e: Emitter,
    sizes: list[int],
    pulls: list[Pull],
    fold: Fold,
    dtype: Any,
    width: int,
    cost: int = 1,
) -> list[list[ty.Value]]:
    """For each pull, what `fold` holds after every index below `sizes`.

    A few partial results take turns, so that no step waits for the one before it.
    One pull is about `cost` operations.
    """
    if 0 in sizes or not sizes:
        held = [
            list(fold.starts) if sizes else fold.enter(e.b, pull(())) for pull in pulls
        ]
        return [[ty.splat(e.b, number, width) for number in one] for one in held]
    *outer, n = sizes
    turns = next(k for k in (4, 2, 1) if (k * len(pulls) <= 4 and n >= 2 * k) or k == 1)
    kinds = [ty.with_width(start.type, width) for start in fold.starts]
    cells = [
        [[e.entry.alloca(kind) for kind in kinds] for _ in range(turns)] for _ in pulls
    ]
    for partials in cells:
        for partial in partials:
            for cell, start in zip(partial, fold.starts, strict=True):
                e.b.store(ty.splat(e.b, start, width), cell)

    def take(index: tuple[Index, ...], turn: int) -> None:
        for pull, partials in zip(pulls, cells, strict=True):
            numbers = fold.enter(e.b, ty.splat(e.b, pull(index), width))
            for combine, number, cell in zip(
                fold.combines, numbers, partials[turn], strict=True
            ):
                e.b.store(combine(e.b, dtype, e.b.load(cell), number), cell)

    def visit(index: tuple[Index, ...]) -> None:
        *front, block = index
        for turn in range(turns):
            take((*front, add(e.b, scale(e.b, block, turns), turn)), turn)

    registers = max(1, width // e.plan.inner_width)
    e.for_each([*outer, n // turns], visit, turns * max(cost, 1) * registers)
    for k in range(n - n % turns, n):
        e.for_each(outer, lambda index, k=k: take((*index, k), k % turns))
    results = []
    for partials in cells:
        values = [[e.b.load(cell) for cell in partial] for partial in partials]
        while len(values) > 1:
            half = len(values) // 2
            values = [
                [
                    combine(e.b, dtype, x, y)
                    for combine, x, y in zip(fold.combines, *pair, strict=True)
                ]
                for pair in zip(values[:half], values[half:], strict=True)
            ]
        results.append(values[0])
    return results


RULES = dict.fromkeys(KINDS, reduction)
