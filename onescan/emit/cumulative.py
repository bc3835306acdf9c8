"""Cumulative operations: each element combined with all before it, or behind it.

Lanes that lie across rows go from one element to the next.  Where vectors lie along a
row, each is combined with itself, shifted by one place, by two, by four, and then with
the last total: as few waits for each other as a row has vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Vec, add, scale
from onescan.emit.constants import positions
from onescan.emit.convert import rounded
from onescan.emit.emitter import Emitter
from onescan.emit.folds import Combine
from onescan.emit.reduce import KINDS, index_width, is_lengthwise
from onescan.loop import Equation

#: how two are combined
CUMULATIVE: dict[str, Combine] = {
    f"cum{name}": KINDS[f"reduce_{name}"][0] for name in ("sum", "prod", "max", "min")
}
#: a position, and what belongs there
Pull = Callable[[Index], ty.Value]
Store = Callable[[Index, ty.Value], None]


def cumulative(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    axis = eqn.params["axis"]
    target = e.fresh(out)
    memory = target.memory
    assert memory is not None
    n = x.shape[axis]
    others = tuple(s for i, s in enumerate(target.shape) if i != axis)
    lanes = tuple(l for i, l in enumerate(target.lanes) if i != axis)
    # a vector across rows is brought together, and put away, number by number
    apart = axis == len(target.shape) - 1 and others
    each = 3 * e.plan.inner_width if apart else 1
    # 16 bits are rounded after each operation: in the order of the elements
    lengthwise = is_lengthwise(e, x, [axis]) and x.dtype not in ty.HALVES
    # and products of some factors may be too large where that of all before is not
    lengthwise &= eqn.primitive.name != "cumprod" or not ty.is_float(x.dtype)

    def visit(index: tuple[Index, ...]) -> None:
        place = lambda k: (*index[:axis], k, *index[axis:])
        pull = lambda k: x.at(place(k))
        store = lambda k, total: memory.store(e.b, place(k), total)
        if lengthwise:
            _by_vectors(e, eqn, n, pull, store)
        else:
            _one_by_one(e, eqn, n, pull, store, index_width(index), each)

    if lengthwise:
        e.nest(others, lanes, visit, vector=None, cost=max(x.cost, 1) * n)
    elif n:
        e.nest(others, lanes, visit, cost=each * n)
    return [target]


def _one_by_one(
    e: Emitter,
    eqn: Equation,
    n: int,
    pull: Pull,
    store: Store,
    width: int,
    each: int,
) -> None:
    combine, dtype = CUMULATIVE[eqn.primitive.name], eqn.invars[0].aval.dtype
    cell = e.entry.alloca(ty.with_width(ty.register_type(dtype), width))

    def place(k: Index) -> Index:
        if not eqn.params["reverse"]:
            return k
        last = ir.Constant(ty.I64, n - 1)
        return n - 1 - k if isinstance(k, int) else e.b.sub(last, k)

    first = ty.splat(e.b, pull(place(0)), width)
    if eqn.primitive.name == "cumsum":  # of -0.0 alone, which is 0.0
        nothing = ty.constant(ty.register_type(dtype), 0, width)
        first = combine(e.b, dtype, nothing, first)
    e.b.store(first, cell)
    store(place(0), first)

    def step(ks: tuple[Index, ...]) -> None:
        k = place(add(e.b, ks[0], 1))
        value = ty.splat(e.b, pull(k), width)
        total = rounded(e.b, combine(e.b, dtype, e.b.load(cell), value), dtype)
        e.b.store(total, cell)
        store(k, total)

    e.for_each([n - 1], step, each)


def _by_vectors(e: Emitter, eqn: Equation, n: int, pull: Pull, store: Store) -> None:
    combine, dtype = CUMULATIVE[eqn.primitive.name], eqn.invars[0].aval.dtype
    reverse = eqn.params["reverse"]
    element = ty.register_type(dtype)
    neutral = KINDS[eqn.primitive.name.replace("cum", "reduce_")][1](dtype)
    total = ir.Constant(element, neutral)
    stretches = e.stretches(n)
    for begin, count, width in reversed(stretches) if reverse else stretches:
        lanes = width if width > 1 else 0
        nothing = ty.constant(element, neutral, lanes)
        cell = e.entry.alloca(ty.with_width(element, lanes))
        e.b.store(ty.splat(e.b, total, lanes), cell)

        def step(
            ks: tuple[Index, ...],
            begin: int = begin,
            count: int = count,
            width: int = width,
            nothing: ty.Value = nothing,
            cell: Any = cell,
        ) -> None:
            (k,) = ks
            if reverse:
                last = ir.Constant(ty.I64, count - 1)
                k = count - 1 - k if isinstance(k, int) else e.b.sub(last, k)
            first = add(e.b, scale(e.b, k, width), begin)
            place = Vec(first, width) if width > 1 else first
            value, far = ty.splat(e.b, pull(place), lanes), 1
            while far < width:
                shifted = _shifted(e.b, value, nothing, -far if reverse else far)
                value, far = combine(e.b, dtype, shifted, value), 2 * far
            value = combine(e.b, dtype, e.b.load(cell), value)
            store(place, value)
            ends = positions(*[0 if reverse else width - 1] * width)
            whole = e.b.shuffle_vector(value, value, ends) if width > 1 else value
            e.b.store(whole, cell)

        e.for_each([count], step, 4 * width.bit_length())
        total = e.b.load(cell)
        if lanes:
            total = e.b.extract_element(total, ty.FIRST)


def _shifted(b: ty.Builder, x: ty.Value, others: ty.Value, by: int) -> ty.Value:
    """A vector whose numbers stand further behind, and others where none came."""
    width = ty.width_of(x)
    came = [i - by for i in range(width)]
    places = [width + k if 0 <= k < width else i for i, k in enumerate(came)]
    return b.shuffle_vector(others, x, positions(*places))


RULES = dict.fromkeys(CUMULATIVE, cumulative)
