"""The position of the largest or smallest element.

Lanes that lie across rows look at one element of each row after the other, and remember
the best and where it was.  Where vectors lie along a row, the largest is found first,
and then the first place that has it: so no element waits for the one before it.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Vec
from onescan.emit.comparisons import compare, minimum
from onescan.emit.convert import convert
from onescan.emit.emitter import Emitter
from onescan.emit.folds import plain
from onescan.emit.reduce import (
    Pull,
    fold_of,
    highest,
    index_width,
    is_lengthwise,
    lengthwise_totals,
)
from onescan.loop import Equation

#: what positions in a row are counted in, where vectors lie along it
PLACES = np.dtype(np.int32)
#: operations by which an element is asked whether it is the largest
EACH = 4


def arg_extreme(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """The first position of the largest or smallest; NaN counts as both."""
    (x,), (out,) = operands, eqn.outvars
    (axis,) = eqn.params["axes"]
    x, target = e.once(x), e.fresh(out)
    memory = target.memory
    assert memory is not None
    lengthwise = is_lengthwise(e, x, [axis])
    find = _along_a_row if lengthwise else _across_rows

    def visit(index: tuple[Index, ...]) -> None:
        row = lambda place: x.at((*index[:axis], *place, *index[axis:]))
        found = find(e, eqn, x, row, index_width(index))
        memory.store(e.b, index, found)

    if lengthwise:
        looks = 2 * max(x.cost, 1) * max(x.shape[axis] // e.plan.inner_width, 1)
        e.nest(target.shape, target.lanes, visit, vector=None, cost=looks)
    else:
        e.nest(target.shape, target.lanes, visit)
    return [target]


def _along_a_row(
    e: Emitter, eqn: Equation, x: Array, row: Pull, width: int
) -> ty.Value:
    dtype, n = x.dtype, x.shape[eqn.params["axes"][0]]
    is_largest = eqn.primitive.name == "argmax"
    fold = fold_of(e.b, "reduce_max" if is_largest else "reduce_min", dtype, n)
    [[*held]] = lengthwise_totals(e, [n], [row], fold, dtype, x.cost)
    best = fold.leave(e.b, held)
    none = ty.constant(ty.I32, highest(PLACES))

    def place(term: tuple[Index, ...]) -> ty.Value:
        value = row(term)
        same = compare(e.b, dtype, "==", *ty.match(e.b, value, best))
        if ty.is_float(dtype):  # the largest is NaN where one is
            same = e.b.or_(same, e.b.fcmp_unordered("uno", value, value))
        return e.b.select(*ty.match(e.b, same, place_of(e, term[0], PLACES), none))

    first = plain(minimum, none)
    [[found]] = lengthwise_totals(e, [n], [place], first, PLACES, x.cost + EACH)
    return convert(e.b, found, PLACES, np.dtype(eqn.outvars[0].aval.dtype))


def _across_rows(
    e: Emitter, eqn: Equation, x: Array, row: Pull, width: int
) -> ty.Value:
    sign = ">" if eqn.primitive.name == "argmax" else "<"
    dtype, number = x.dtype, np.dtype(eqn.outvars[0].aval.dtype)
    best = e.entry.alloca(ty.with_width(ty.register_type(dtype), width))
    where = e.entry.alloca(ty.with_width(ty.register_type(number), width))
    e.b.store(ty.splat(e.b, row((0,)), width), best)
    e.b.store(ty.constant(ty.register_type(number), 0, width), where)

    def step(ks: tuple[Index, ...]) -> None:
        (k,) = ks
        k = k + 1 if isinstance(k, int) else e.b.add(k, ir.Constant(ty.I64, 1))
        value = ty.splat(e.b, row((k,)), width)
        held = e.b.load(best)
        better = compare(e.b, dtype, sign, value, held)
        if ty.is_float(dtype):
            is_nan = e.b.fcmp_unordered("uno", value, value)
            was_nan = e.b.fcmp_unordered("uno", held, held)
            better = e.b.and_(e.b.or_(better, is_nan), e.b.not_(was_nan))
        e.b.store(e.b.select(better, value, held), best)
        here = ty.splat(e.b, place_of(e, k, number), width)
        e.b.store(e.b.select(better, here, e.b.load(where)), where)

    e.for_each([x.shape[eqn.params["axes"][0]] - 1], step)
    return e.b.load(where)


def place_of(e: Emitter, k: Index, dtype: np.dtype) -> ty.Value:
    """A position as a number of a type, or as several for that of a vector."""
    kind = ty.register_type(dtype)
    if isinstance(k, Vec):
        first = ty.splat(e.b, place_of(e, k.base, dtype), k.width)
        return e.b.add(first, ty.iota(kind, k.width))
    if isinstance(k, int):
        return ir.Constant(kind, k)
    return k if kind == ty.I64 else e.b.trunc(k, kind)


RULES = dict.fromkeys(("argmax", "argmin"), arg_extreme)
