"""Reductions, cumulative operations, argmax and sort.

A reduction runs over its own axes in order, so that its result does not depend
on vectors or threads, with one exception that is as fixed: where the kernel's
vectors lie along the reduced last dimension, partial results are kept for each
vector position and joined pairwise at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Vec
from onescan.emit.emitter import Emitter

Combine = Callable[[ir.IRBuilder, Any, ir.Value, ir.Value], ir.Value]


def _add(b: ir.IRBuilder, dtype: Any, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.fadd(x, y, flags=el.CONTRACT) if ty.is_float(dtype) else b.add(x, y)


def _mul(b: ir.IRBuilder, dtype: Any, x: ir.Value, y: ir.Value) -> ir.Value:
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
    "reduce_max": (el.maximum, lowest),
    "reduce_min": (el.minimum, highest),
    "reduce_and": (lambda b, dtype, x, y: b.and_(x, y), lambda dtype: -1),
    "reduce_or": (lambda b, dtype, x, y: b.or_(x, y), lambda dtype: 0),
    "reduce_xor": (lambda b, dtype, x, y: b.xor(x, y), lambda dtype: 0),
}


def reduction(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    combine, neutral = KINDS[eqn.primitive.name]
    axes = sorted(eqn.params["axes"])
    dtype = np.dtype(out.aval.dtype)
    target = e.fresh(out)
    memory = target.memory
    assert memory is not None
    rank = len(x.shape)
    start = ty.constant(ty.register_type(dtype), neutral(dtype))
    along = rank - 1
    lengthwise = (
        e.plan.width > 1
        and axes
        and axes[-1] == along
        and x.shape[along] >= 4
        and 0 not in x.shape
    )

    def full(index: tuple[Index, ...], reduced: tuple[Index, ...]) -> tuple:
        kept, gone = iter(index), iter(reduced)
        return tuple(next(gone) if i in axes else next(kept) for i in range(rank))

    def visit(index: tuple[Index, ...]) -> None:
        sizes = [x.shape[i] for i in axes]
        width = _index_width(index)
        if not lengthwise:
            pull = lambda reduced: x.at(full(index, reduced))
            total = accumulate(e, sizes, pull, combine, dtype, start, width)
        else:
            total = start
            begin = 0
            for w in e.widths(sizes[-1]):
                count = (sizes[-1] - begin) // w

                def pull(reduced: Any, begin: int = begin, w: int = w) -> ir.Value:
                    return x.at(full(index, (*reduced[:-1], _block(e, reduced, begin, w))))

                part = accumulate(
                    e, [*sizes[:-1], count], pull, combine, dtype, start, w if w > 1 else 0
                )
                total = combine(e.b, dtype, total, _join(e, part, combine, dtype))
                begin += count * w
        memory.store(e.b, index, el.rounded(e.b, total, dtype))

    e.nest(target.shape, target.lanes, visit, None if lengthwise else -1)
    return [target]


def _block(e: Emitter, reduced: tuple[Index, ...], begin: int, width: int) -> Index:
    block = reduced[-1]
    base: Index
    if isinstance(block, int):
        base = begin + block * width
    else:
        step = e.b.mul(block, ir.Constant(ty.I64, width))  # type: ignore[arg-type]
        base = e.b.add(step, ir.Constant(ty.I64, begin))
    return Vec(base, width) if width > 1 else base


def _index_width(index: tuple[Index, ...]) -> int:
    return next((i.width for i in index if isinstance(i, Vec)), 0)


def _join(e: Emitter, value: ir.Value, combine: Combine, dtype: Any) -> ir.Value:
    """The lanes of a vector combined pairwise into a scalar."""
    b = e.b
    while (width := ty.width_of(value)) > 1:
        half = width // 2
        parts = [
            b.shuffle_vector(
                value,
                ir.Constant(value.type, ir.Undefined),
                ir.Constant(ir.VectorType(ty.I32, half), list(range(k, k + half))),
            )
            for k in (0, half)
        ]
        value = combine(b, dtype, *parts)
    if width == 1:
        return b.extract_element(value, ir.Constant(ty.I32, 0))
    return value


def accumulate(
    e: Emitter,
    sizes: list[int],
    pull: Callable[[tuple[Index, ...]], ir.Value],
    combine: Combine,
    dtype: Any,
    start: ir.Value,
    width: int,
) -> ir.Value:
    """Combine `pull(index)` over every index below `sizes`, in order."""
    kind = ty.with_width(ty.register_type(dtype), width)
    cell = e.entry.alloca(kind)
    e.b.store(ty.splat(e.b, start, width), cell)

    def visit(index: tuple[Index, ...]) -> None:
        held = e.b.load(cell)
        value = ty.splat(e.b, pull(index), width)
        e.b.store(combine(e.b, dtype, held, value), cell)

    if 0 not in sizes:
        e.for_each(sizes, visit)
    return e.b.load(cell)


def arg_extreme(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    """The first position of the largest or smallest; NaN counts as both."""
    (x,), (out,) = operands, eqn.outvars
    (axis,) = eqn.params["axes"]
    sign = ">" if eqn.primitive.name == "argmax" else "<"
    dtype, number = x.dtype, np.dtype(out.aval.dtype)
    x = e.once(x)
    target = e.fresh(out)
    memory = target.memory
    assert memory is not None

    def visit(index: tuple[Index, ...]) -> None:
        width = _index_width(index)
        kind = ty.with_width(ty.register_type(dtype), width)
        best = e.entry.alloca(kind)
        where = e.entry.alloca(ty.with_width(ty.register_type(number), width))
        place = lambda k: (*index[:axis], k, *index[axis:])
        e.b.store(ty.splat(e.b, x.at(place(0)), width), best)
        e.b.store(ty.constant(ty.register_type(number), 0, width), where)

        def step(ks: tuple[Index, ...]) -> None:
            (k,) = ks
            k = k + 1 if isinstance(k, int) else e.b.add(k, ir.Constant(ty.I64, 1))
            value = ty.splat(e.b, x.at(place(k)), width)
            held = e.b.load(best)
            better = el.compare(e.b, dtype, sign, value, held)
            if ty.is_float(dtype):
                is_nan = e.b.fcmp_unordered("uno", value, value)
                was_nan = e.b.fcmp_unordered("uno", held, held)
                better = e.b.and_(e.b.or_(better, is_nan), e.b.not_(was_nan))
            e.b.store(e.b.select(better, value, held), best)
            here = ty.splat(e.b, _as_number(e, k, number), width)
            e.b.store(e.b.select(better, here, e.b.load(where)), where)

        e.for_each([x.shape[axis] - 1], step)
        memory.store(e.b, index, e.b.load(where))

    e.nest(target.shape, target.lanes, visit)
    return [target]


def _as_number(e: Emitter, k: Index, dtype: np.dtype) -> ir.Value:
    kind = ty.register_type(dtype)
    if isinstance(k, int):
        return ir.Constant(kind, k)
    return k if kind == ty.I64 else e.b.trunc(k, kind)  # type: ignore[return-value]


CUMULATIVE: dict[str, Combine] = {
    "cumsum": _add,
    "cumprod": _mul,
    "cummax": el.maximum,
    "cummin": el.minimum,
}


def cumulative(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    axis, reverse = eqn.params["axis"], eqn.params["reverse"]
    combine, dtype = CUMULATIVE[eqn.primitive.name], x.dtype
    target = e.fresh(out)
    memory = target.memory
    assert memory is not None
    n = x.shape[axis]
    others = tuple(s for i, s in enumerate(target.shape) if i != axis)
    lanes = tuple(l for i, l in enumerate(target.lanes) if i != axis)

    def visit(index: tuple[Index, ...]) -> None:
        width = _index_width(index)
        cell = e.entry.alloca(ty.with_width(ty.register_type(dtype), width))

        def place(k: Index) -> tuple[Index, ...]:
            if reverse:
                last = ir.Constant(ty.I64, n - 1)
                k = n - 1 - k if isinstance(k, int) else e.b.sub(last, k)
            return (*index[:axis], k, *index[axis:])

        first = ty.splat(e.b, x.at(place(0)), width)
        e.b.store(first, cell)
        memory.store(e.b, place(0), first)

        def step(ks: tuple[Index, ...]) -> None:
            (k,) = ks
            k = k + 1 if isinstance(k, int) else e.b.add(k, ir.Constant(ty.I64, 1))
            value = ty.splat(e.b, x.at(place(k)), width)
            total = el.rounded(
                e.b, combine(e.b, dtype, e.b.load(cell), value), dtype
            )
            e.b.store(total, cell)
            memory.store(e.b, place(k), total)

        e.for_each([n - 1], step)

    if n:
        e.nest(others, lanes, visit)
    return [target]


RULES = {
    **dict.fromkeys(KINDS, reduction),
    "argmax": arg_extreme,
    "argmin": arg_extreme,
    **dict.fromkeys(CUMULATIVE, cumulative),
}
