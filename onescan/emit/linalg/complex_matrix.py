"""Elements of complex matrices, as two registers each, and Householder reflections.

A reflection is I - scale v v^H, as LAPACK has it: its conjugate transpose makes a
column a real multiple of a unit vector.  The first number of v is one; the others are
left where the column was.  A column that is such a multiple already is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory
from onescan.emit.convert import intrinsic, like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg.jacobi import plus_product
from onescan.emit.linalg.matrix import (
    Batch,
    Elements,
    InMemory,
    InRegisters,
    Walk,
    after,
    magnitude,
    minus_product,
    over,
    reciprocal,
    root,
    same,
    times,
    width_at,
)


class Complex(NamedTuple):
    re: ty.Value
    im: ty.Value


class Numbers(Protocol):
    """The elements of a complex matrix."""

    def get(self, i: Index, j: Index) -> Complex: ...
    def put(self, i: Index, j: Index, value: Complex) -> None: ...


@dataclass(frozen=True)
class Parts:
    """Those whose real and imaginary parts stand apart."""

    re: Elements
    im: Elements

    def get(self, i: Index, j: Index) -> Complex:
        return Complex(self.re.get(i, j), self.im.get(i, j))

    def put(self, i: Index, j: Index, value: Complex) -> None:
        self.re.put(i, j, value.re)
        self.im.put(i, j, value.im)


@dataclass(frozen=True)
class Adjoint:
    """The conjugate transpose of a matrix, in its place."""

    b: ty.Builder
    of: Numbers

    def get(self, i: Index, j: Index) -> Complex:
        return conj(self.b, self.of.get(j, i))

    def put(self, i: Index, j: Index, value: Complex) -> None:
        self.of.put(j, i, conj(self.b, value))


class Room:
    """Memory for an array of numbers of each matrix of a batch."""

    def __init__(self, e: Emitter, batch: Array, shape: tuple[int, ...]) -> None:
        whole = (*batch.shape[:-2], *shape)
        lanes = (*batch.lanes[:-2], *(None for _ in shape))
        self.e, self.rank = e, len(whole)
        self.memories = [e.scratch(whole, lanes, batch.dtype) for _ in Complex._fields]

    def at(self, batch: Batch) -> Parts:
        """That of one matrix."""
        place = lambda i, j: (*batch, i, j)[: self.rank]
        return in_memory(self.e, self.memories, place)


def two_diagonals(
    e: Emitter,
    memory: Memory,
    batch: Array,
    n: int,
    *,
    upper: bool,
    swapped: bool = False,
) -> Array:
    """The diagonal of a matrix in memory, and the one beside it, or their transpose."""

    def at(index: Batch) -> ty.Value:
        *front, i, j = index
        row, column = (j, i) if swapped else (i, j)
        value = memory.load(e.b, (*front, row, column))
        low, high = (row, column) if upper else (column, row)
        beside = same(e, after(e, low), high, value, like(value, 0))
        return same(e, row, column, value, beside)

    shape = (*batch.shape[:-2], n, n)
    return Array(shape, batch.dtype, at, lanes=batch.lanes)


def in_registers() -> Parts:
    return Parts(InRegisters(), InRegisters())


def in_memory(e: Emitter, memories: Any, place: Any) -> Parts:
    """Of two memories, one for each part."""
    re, im = (InMemory(e, memory, place) for memory in memories)
    return Parts(re, im)


def given_at(e: Emitter, x: list[Array], place: Batch) -> Complex:
    """An element of an operand."""
    re, im = (ty.splat(e.b, part.at(place), width_at(place)) for part in x)
    return Complex(re, im)


def conj(b: ty.Builder, x: Complex) -> Complex:
    return Complex(x.re, b.fneg(x.im))


def plus(b: ty.Builder, x: Complex, y: Complex, z: Complex) -> Complex:
    """x + y * z."""
    re = minus_product(b, plus_product(b, x.re, y.re, z.re), y.im, z.im)
    im = plus_product(b, plus_product(b, x.im, y.re, z.im), y.im, z.re)
    return Complex(re, im)


def minus(b: ty.Builder, x: Complex, y: Complex, z: Complex) -> Complex:
    """x - y * z."""
    re = plus_product(b, minus_product(b, x.re, y.re, z.re), y.im, z.im)
    im = minus_product(b, minus_product(b, x.im, y.re, z.im), y.im, z.re)
    return Complex(re, im)


def product(b: ty.Builder, x: Complex, y: Complex) -> Complex:
    re = minus_product(b, times(b, x.re, y.re), x.im, y.im)
    return Complex(re, plus_product(b, times(b, x.re, y.im), x.im, y.re))


def scaled(b: ty.Builder, x: Complex, by: ty.Value) -> Complex:
    return Complex(times(b, x.re, by), times(b, x.im, by))


def divided(b: ty.Builder, x: Complex, by: ty.Value) -> Complex:
    return Complex(over(b, x.re, by), over(b, x.im, by))


def reflect(walk: Walk, a: Numbers, p: Index, k: Index, rows: int) -> Complex:
    """Make column k zero below row p, and real there; the vector of the reflection is
    left below row p, and its scale is given back.

    Sizes are relative to the largest, so that their squares are numbers.
    """
    e, b = walk.e, walk.e.b
    first = a.get(p, k)
    zero, one = like(first.re, 0), like(first.re, 1)
    rest = walk.cell(magnitude(b, first.im))
    for i in walk.each(after(e, p), rows):
        for part in a.get(i, k):
            _enlarge(b, rest, magnitude(b, part))
    flat = b.fcmp_ordered("==", rest.get(), zero)
    _enlarge(b, rest, magnitude(b, first.re))
    unit = b.select(flat, one, rest.get())
    start = divided(b, first, unit)
    squares = walk.cell(_square(b, zero, start))
    for i in walk.each(after(e, p), rows):
        squares.set(_square(b, squares.get(), divided(b, a.get(i, k), unit)))
    size = root(b, squares.get())
    turned = b.fneg(intrinsic(b, "llvm.copysign", size, first.re))
    apart = Complex(b.fsub(start.re, turned), start.im)
    share = scaled(b, conj(b, apart), reciprocal(b, _square(b, zero, apart)))
    for i in walk.each(after(e, p), rows):
        value = a.get(i, k)
        part = product(b, divided(b, value, unit), share)
        a.put(i, k, _chosen(b, flat, value, part))
    whole = Complex(times(b, turned, unit), zero)
    a.put(p, k, _chosen(b, flat, first, whole))
    scale = divided(b, apart, b.fneg(turned))
    return _chosen(b, flat, Complex(zero, zero), scale)


def _enlarge(b: ty.Builder, cell: Any, size: ty.Value) -> None:
    """The larger of two sizes; NaN stays."""
    cell.set(intrinsic(b, "llvm.maximum", cell.get(), size))


def _square(b: ty.Builder, total: ty.Value, x: Complex) -> ty.Value:
    return plus_product(b, plus_product(b, total, x.re, x.re), x.im, x.im)


def _chosen(b: ty.Builder, which: ty.Value, x: Complex, y: Complex) -> Complex:
    return Complex(*(b.select(which, u, v) for u, v in zip(x, y, strict=True)))


@dataclass(frozen=True)
class Reflections:
    """Those whose vectors stand in columns, from `below` rows below the diagonal on."""

    walk: Walk
    vectors: Numbers
    scales: Numbers
    rows: int
    below: int = 0

    def apply(self, to: Numbers, k: Index, j: Index, backwards: bool) -> None:
        """Reflect column j of a matrix by reflection k, or by its transpose."""
        walk, b = self.walk, self.walk.e.b
        p = self.pivot(k)
        first = to.get(p, j)
        along = [walk.cell(part) for part in first]
        for i in walk.each(after(walk.e, p), self.rows):
            vector = conj(b, self.vectors.get(i, k))
            total = Complex(*(cell.get() for cell in along))
            for cell, part in zip(
                along, plus(b, total, vector, to.get(i, j)), strict=True
            ):
                cell.set(part)
        scale = self.scales.get(k, 0)
        scale = conj(b, scale) if backwards else scale
        share = product(b, Complex(*(cell.get() for cell in along)), scale)
        to.put(
            p, j, Complex(*(b.fsub(x, y) for x, y in zip(first, share, strict=True)))
        )
        for i in walk.each(after(walk.e, p), self.rows):
            to.put(i, j, minus(b, to.get(i, j), share, self.vectors.get(i, k)))

    def make(self, k: Index) -> None:
        """Reflection k, of the column where its vector is left."""
        scale = reflect(self.walk, self.vectors, self.pivot(k), k, self.rows)
        self.scales.put(k, 0, scale)

    def pivot(self, k: Index) -> Index:
        for _ in range(self.below):
            k = after(self.walk.e, k)
        return k
