"""Jacobi's method: turn two columns at a time, in sweeps over all pairs of them.

What is shared by eigenvalues and singular values.  Rotations are the same operations
in every lane; where a lane has nothing left to turn its angle is zero, which changes
nothing, and pairs that no lane turns are passed over.  A sweep squares what is left,
so a handful of them end it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Index
from onescan.emit.convert import any_lane, intrinsic, like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg.matrix import (
    Cell,
    Elements,
    Walk,
    after,
    chosen,
    magnitude,
    minus_product,
    over,
    reciprocal,
    root,
    times,
)

#: columns up to which the loops of a sweep are written out
UNROLLED = 4
#: sweeps that matrices of one column more than this take, and the most there are
FIRST, MOST = 3, 40


def expected_sweeps(n: int) -> float:
    """About how many sweeps end it (as counted, in float32)."""
    return FIRST + np.log2(max(n, 1))


class InCells:
    """Elements whose places are known, and whose values change in loops."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.cells: dict[tuple[Index, Index], Cell] = {}

    def get(self, i: Index, j: Index) -> ty.Value:
        return self.cells[i, j].get()

    def put(self, i: Index, j: Index, value: ty.Value) -> None:
        if (i, j) in self.cells:
            self.cells[i, j].set(value)
        else:
            self.cells[i, j] = self.walk.cell(value)


@dataclass(frozen=True)
class Turn:
    """By an angle: its sine, and sine / (1 + cosine)."""

    sine: ty.Value
    half: ty.Value

    def apply(self, b: ty.Builder, x: ty.Value, y: ty.Value) -> list[ty.Value]:
        """Two numbers, turned; what is added is small where the angle is."""
        x, y, sine, half = ty.match(b, x, y, self.sine, self.half)
        less = plus_product(b, y, x, half)
        more = minus_product(b, x, y, half)
        return [minus_product(b, x, sine, less), plus_product(b, y, sine, more)]


@dataclass(frozen=True)
class Rotation(Turn):
    """The turn whose angle has this tangent."""

    tangent: ty.Value


def rotation(
    b: ty.Builder, apart: ty.Value, joint: ty.Value, wanted: ty.Value
) -> Rotation:
    """What makes [[x, joint], [joint, x + apart]] diagonal, where that is wanted."""
    twice = b.fadd(joint, joint)
    squares = plus_product(b, times(b, apart, apart), twice, twice)
    below = b.fadd(magnitude(b, apart), root(b, squares))
    turned = over(b, twice, intrinsic(b, "llvm.copysign", below, apart))
    tangent = b.select(wanted, turned, like(turned, 0))
    one = like(tangent, 1)
    cosine = reciprocal(b, root(b, plus_product(b, one, tangent, tangent)))
    sine = times(b, tangent, cosine)
    return Rotation(sine, over(b, sine, b.fadd(one, cosine)), tangent)


Place = tuple[Index, Index]


def turn(walk: Walk, by: Rotation, a: Elements, x: Place, y: Place) -> None:
    """Turn two elements, where they stand."""
    turned = by.apply(walk.e.b, a.get(*x), a.get(*y))
    for place, value in zip((x, y), turned, strict=True):
        a.put(*place, value)


def plus_product(b: ty.Builder, x: ty.Value, y: ty.Value, z: ty.Value) -> ty.Value:
    """x + y * z."""
    x, y, z = ty.match(b, x, y, z)
    return b.fadd(x, b.fmul(y, z, flags=el.CONTRACT), flags=el.CONTRACT)


def sweeps(
    walk: Walk, n: int, visit: Callable[[Index, Index], ty.Value], about: float
) -> None:
    """Turn pairs of n columns until a sweep finds none that is to be turned."""
    e = walk.e
    turned = walk.cell(ty.constant(ty.I1, 0))
    with e.loop_while(turned.get, MOST, about):
        turned.set(ty.constant(ty.I1, 0))
        for p in walk.each(0, n - 1):
            for q in walk.each(after(e, p), n):
                wanted = any_lane(e.b, visit(p, q))
                turned.set(e.b.or_(turned.get(), wanted))


def in_order(
    walk: Walk,
    n: int,
    values: Elements,
    columns: Iterable[tuple[Elements, int]],
    before: str,
) -> None:
    """Exchange columns, with their values, until each value is `before` the next."""
    e = walk.e
    for p in walk.each(0, n - 1):
        for q in walk.each(after(e, p), n):
            first, second = values.get(p, 0), values.get(q, 0)
            wrong = e.b.fcmp_ordered(before, second, first)
            with e.b.if_then(any_lane(e.b, wrong)):
                _exchange(e, wrong, values, p, q, None)
                for matrix, rows in columns:
                    for k in walk.each(0, rows):
                        _exchange(e, wrong, matrix, p, q, k)


def _exchange(
    e: Emitter, wrong: ty.Value, a: Elements, p: Index, q: Index, row: Index | None
) -> None:
    places = [(p, 0), (q, 0)] if row is None else [(row, p), (row, q)]
    x, y = (a.get(*place) for place in places)
    a.put(*places[0], chosen(e.b, wrong, y, x))
    a.put(*places[1], chosen(e.b, wrong, x, y))


def largest(walk: Walk, numbers: Iterable[ty.Value], first: ty.Value) -> ty.Value:
    """The largest magnitude, or NaN where one of them is."""
    b, cell = walk.e.b, walk.cell(like(first, 0))
    for x in numbers:
        size = magnitude(b, x)
        greater = b.fcmp_unordered(">", size, cell.get())
        known = b.fcmp_ordered("==", cell.get(), cell.get())
        cell.set(b.select(b.and_(greater, known), size, cell.get()))
    return cell.get()


def unit_of(b: ty.Builder, size: ty.Value) -> ty.Value:
    """The power of two that numbers of such a size are divided by, with no rounding.

    Fourth powers of those that count are numbers then, as squares of products.
    """
    kind, width = ty.element_type(size), ty.width_of(size)
    whole, exponent, least = (
        (ty.I64, 0x7FF << 52, 2.0**-1022)
        if kind == ty.F64
        else (ty.I32, 0xFF << 23, 2.0**-126)
    )
    bits = b.bitcast(size, ty.with_width(whole, width))
    bits = b.and_(bits, ty.constant(whole, exponent, width))
    power = b.bitcast(bits, size.type)
    is_normal = b.fcmp_ordered(">=", size, like(size, least))
    some = b.fcmp_ordered(">", size, like(size, 0))
    small = b.select(some, like(size, least), like(size, 1))
    return b.select(is_normal, power, small)


def is_finite(b: ty.Builder, size: ty.Value) -> ty.Value:
    return b.fcmp_ordered("<", size, like(size, float("inf")))
