"""onescan_svd: singular values of complex matrices, and the vectors of both sides.

Reflections of both sides make a matrix bidiagonal, and real.  Its singular values are
those of a real square one (`svd.py`), whose vectors the same reflections turn back.  A
wide matrix is done as its conjugate transpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.convert import like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg import jacobi
from onescan.emit.linalg import svd as real_svd
from onescan.emit.linalg.complex_matrix import (
    Adjoint,
    Complex,
    Numbers,
    Reflections,
    Room,
    conj,
    divided,
    given_at,
    in_memory,
    two_diagonals,
)
from onescan.emit.linalg.complex_qr import UNROLLED, multiply
from onescan.emit.linalg.matrix import (
    Batch,
    InMemory,
    Walk,
    after,
    matrix_by_matrix,
    same,
    times,
)


def svd(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    x = [e.once(part) for part in operands]
    values, *sides = targets = [e.fresh(v) for v in eqn.outvars]
    real_sides, imaginary_sides = sides[::2], sides[1::2]
    if 0 in x[0].shape:
        real_svd.of_nothing(e, real_sides)
        real_svd.of_nothing(e, imaginary_sides, diagonal=0)
        return targets
    problem = _Problem(e, x, values, [real_sides, imaginary_sides])
    matrix_by_matrix(e, x[0], problem.reduce, problem.operations)
    found = [values, *real_sides]
    real_svd.solve(e, problem.bidiagonal, found, full=False, most=UNROLLED)
    matrix_by_matrix(e, x[0], problem.turn_back, problem.operations)
    return targets


class _Problem:
    """Matrices with no more columns than rows, and where their factors go."""

    def __init__(
        self, e: Emitter, x: list[Array], values: Array, sides: list[list[Array]]
    ) -> None:
        self.e, self.x, self.sides = e, x, sides
        whole, self.found = x[0], values.memory
        self.wide = whole.shape[-2] < whole.shape[-1]
        n, rows = self.columns, self.rows = sorted(whole.shape[-2:])
        self.operations = 16 * rows * n * n
        self.walk = Walk(e, rows, self.operations, UNROLLED)
        self.walk.width = 1
        shapes = ((rows, n), (n,), (n,), (1,))
        self.room, *self.scales, self.units = (Room(e, whole, s) for s in shapes)
        self.bidiagonal = two_diagonals(
            e, self.room.memories[0], whole, n, upper=True, swapped=self.wide
        )

    def reflections(self, batch: Batch) -> tuple[Reflections, Reflections]:
        """Those of the columns, and those of the rows."""
        a, (left, right) = self.room.at(batch), (s.at(batch) for s in self.scales)
        turned = Adjoint(self.e.b, a)
        return (
            Reflections(self.walk, a, left, self.rows),
            Reflections(self.walk, turned, right, self.columns, below=1),
        )

    def given(self, batch: Batch, i: Index, j: Index) -> Complex:
        if self.wide:
            return conj(self.e.b, given_at(self.e, self.x, (*batch, j, i)))
        return given_at(self.e, self.x, (*batch, i, j))

    def reduce(self, batch: Batch) -> None:
        """Make matrices bidiagonal where the vectors of reflections are left.

        They are divided by numbers that keep them from overflowing.
        """
        e, walk, n = self.e, self.walk, self.columns
        first = self.given(batch, 0, 0).re
        unit = jacobi.unit_of(e.b, jacobi.largest(walk, self._all(batch), first))
        self.units.at(batch).re.put(0, 0, unit)
        left, right = self.reflections(batch)
        for i in walk.each(0, self.rows):
            for j in walk.each(0, n):
                value = divided(e.b, self.given(batch, i, j), unit)
                left.vectors.put(i, j, value)
        for k in walk.each(0, n - 1):
            for by, columns in ((left, n), (right, self.rows)):
                by.make(k)
                for j in walk.each(after(e, k), columns):
                    by.apply(by.vectors, k, j, backwards=True)
        left.make(n - 1)

    def _all(self, batch: Batch) -> Iterator[ty.Value]:
        for i in self.walk.each(0, self.rows):
            for j in self.walk.each(0, self.columns):
                yield from self.given(batch, i, j)

    def turn_back(self, batch: Batch) -> None:
        e, walk, n = self.e, self.walk, self.columns
        found = InMemory(e, self.found, lambda i, j: (*batch, i))  # type: ignore[arg-type]
        unit = self.units.at(batch).re.get(0, 0)
        for i in walk.each(0, n):
            found.put(i, 0, times(e.b, found.get(i, 0), unit))
        if not self.sides[0]:
            return
        at = lambda i, j: (*batch, i, j)
        left, right = (
            in_memory(e, [part.memory for part in parts], at)
            for parts in zip(*self.sides, strict=True)
        )
        of_rows: Numbers = Adjoint(e.b, right)
        of_columns: Numbers = left
        asked_for = self.sides[0][0].shape[-1]
        if self.wide:
            of_rows, of_columns = of_columns, of_rows
            asked_for = self.sides[0][1].shape[-2]
        by_columns, by_rows = self.reflections(batch)
        self._complete(of_columns, self.rows, asked_for)
        multiply(by_columns, of_columns, asked_for, n)
        self._complete(of_rows, n, n)
        multiply(by_rows, of_rows, n, n - 1)

    def _complete(self, side: Numbers, rows: int, columns: int) -> None:
        """The real vectors that are there, and as many more as there is room for."""
        e, walk, n = self.e, self.walk, self.columns
        for i in walk.each(0, n):
            for j in walk.each(0, n):
                part = side.get(i, j).re
                side.put(i, j, Complex(part, e.b.fsub(part, part)))  # zero, or NaN
        some = side.get(0, 0).re
        zero, one = like(some, 0), like(some, 1)
        for i in walk.each(0, rows):
            for j in walk.each(n, columns):
                side.put(i, j, Complex(same(e, i, j, one, zero), zero))
        for i in walk.each(n, rows):
            for j in walk.each(0, n):
                side.put(i, j, Complex(zero, zero))


RULES = {"onescan_svd": svd}
