"""onescan_eigh: eigenvalues of Hermitian matrices, and their vectors.

Reflections of both sides make such a matrix tridiagonal, and real.  Its eigenvalues are
those of a real symmetric matrix of the same size (`eigh.py`), whose vectors the same
reflections turn back: eigenvalues that are there twice are no trouble.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.convert import like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg import eigh as symmetric
from onescan.emit.linalg import jacobi
from onescan.emit.linalg.complex_matrix import (
    Adjoint,
    Complex,
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


def eigh(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    x = [e.once(part) for part in operands]
    *vectors, values = targets = [e.fresh(v) for v in eqn.outvars]
    whole, n = vectors[0], vectors[0].shape[-1]
    if 0 in whole.shape:
        return targets
    operations = 16 * n**3
    walk = Walk(e, n, operations, UNROLLED)
    walk.width = 1
    room, scales, units = (Room(e, whole, shape) for shape in ((n, n), (n,), (1,)))

    def reflections(batch: Batch) -> Reflections:
        return Reflections(walk, room.at(batch), scales.at(batch), n, below=1)

    def reduce(batch: Batch) -> None:
        def given(i: Index, j: Index) -> Complex:
            if not eqn.params["lower"]:
                return conj(e.b, given_at(e, x, (*batch, j, i)))
            return given_at(e, x, (*batch, i, j))

        _reduce(reflections(batch), given, units.at(batch).re, n)

    def turn_back(batch: Batch) -> None:
        at = lambda i, j: (*batch, i, j)
        made = in_memory(e, [part.memory for part in vectors], at)
        found = InMemory(e, values.memory, lambda i, j: (*batch, i))  # type: ignore[arg-type]
        unit = units.at(batch).re.get(0, 0)
        for i in walk.each(0, n):
            found.put(i, 0, times(e.b, found.get(i, 0), unit))
            for j in walk.each(0, n):
                part = made.re.get(i, j)
                made.im.put(i, j, e.b.fsub(part, part))  # zero, or NaN
        multiply(reflections(batch), made, n, n - 1)

    matrix_by_matrix(e, whole, reduce, operations)
    real = two_diagonals(e, room.memories[0], whole, n, upper=False)
    symmetric.solve(e, real, whole, values, lower=True, most=UNROLLED)
    matrix_by_matrix(e, whole, turn_back, operations)
    return targets


def _reduce(by: Reflections, given: Any, units: Any, n: int) -> None:
    """Make a matrix tridiagonal where the vectors of reflections are left.

    It is divided by a number that keeps it from overflowing.
    """
    walk, a = by.walk, by.vectors
    e, b = walk.e, walk.e.b
    size = jacobi.largest(walk, _triangle(walk, given, n), given(0, 0).re)
    unit = jacobi.unit_of(b, size)
    units.put(0, 0, unit)
    for i in walk.each(0, n):
        for j in walk.each(0, after(e, i)):
            re, im = divided(b, given(i, j), unit)
            value = Complex(re, same(e, i, j, like(im, 0), im))
            a.put(j, i, conj(b, value))
            a.put(i, j, value)
    for k in walk.each(0, n - 1):
        by.make(k)
        for side in (a, Adjoint(b, a)):
            for j in walk.each(after(e, k), n):
                by.apply(side, k, j, backwards=True)


def _triangle(walk: Walk, given: Any, n: int) -> Iterator[ty.Value]:
    for i in walk.each(0, n):
        for j in walk.each(0, after(walk.e, i)):
            re, im = given(i, j)
            yield re
            yield same(walk.e, i, j, like(im, 0), im)


RULES = {"onescan_eigh": eigh}
