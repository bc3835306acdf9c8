"""cholesky: the lower factor of a positive definite matrix, column by column.

Each column is divided by the root of its pivot, and what it explains is taken off the
columns after it.  Only the lower triangle is read.  A matrix that is not positive
definite (a pivot is zero or below) has a factor of NaN, as a whole; a NaN in it spreads
over the rows and columns that it takes part in, as in LAPACK.
"""

from __future__ import annotations

from typing import Any

from onescan.emit import types as ty
from onescan.emit.arrays import Array
from onescan.emit.convert import like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg.matrix import (
    Batch,
    Elements,
    InMemory,
    InRegisters,
    Walk,
    after,
    chosen,
    matrix_by_matrix,
    minus_product,
    reciprocal,
    root,
    times,
    width_at,
)


def cholesky(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    (x,) = operands
    target = e.fresh(eqn.outvars[0])
    if 0 in target.shape:
        return [target]
    n = target.shape[-1]
    operations = n**3 / 3 + 10 * n
    walk = Walk(e, n, operations)
    memory: Any = target.memory
    room: Any = None
    if walk.width > 1:
        room = e.scratch((n, walk.padded(n)), (None, None), target.dtype)

    def visit(batch: Batch) -> None:
        if walk.unrolled:
            a: Elements = InRegisters()
        elif room is not None:  # a column lies in a row, for vectors along it
            a = InMemory(e, room, lambda i, j: (j, i))
        else:
            a = InMemory(e, memory, lambda i, j: (*batch, i, j))
        for i in walk.each(0, n):
            for j in walk.each(0, after(e, i)):
                a.put(i, j, x.at((*batch, i, j)))
        is_definite = factor(walk, a, n, width_at(batch))
        kind = ty.register_type(target.dtype)
        zero, nan = (ty.constant(kind, v) for v in (0.0, float("nan")))
        for i in walk.each(0, n):
            for j in walk.each(0, after(e, i)):
                value = chosen(e.b, is_definite, a.get(i, j), nan)
                memory.store(e.b, (*batch, i, j), value)
            for j in walk.each(after(e, i), n):
                memory.store(e.b, (*batch, i, j), zero)

    matrix_by_matrix(e, target, visit, operations)
    return [target]


def factor(walk: Walk, a: Elements, n: int, width: int) -> ty.Value:
    """Factor in place, and tell whether the matrix was positive definite."""
    e = walk.e
    is_definite = walk.cell(ty.constant(ty.I1, 1, width))
    for k in walk.each(0, n):
        pivot = a.get(k, k)
        positive = e.b.fcmp_unordered(">", pivot, like(pivot, 0))
        is_definite.set(e.b.and_(*ty.match(e.b, is_definite.get(), positive)))
        diagonal = root(e.b, pivot)
        scale = reciprocal(e.b, diagonal)
        for i in walk.spans(after(e, k), n):
            a.put(i, k, times(e.b, a.get(i, k), scale))
        a.put(k, k, diagonal)
        for j in walk.each(after(e, k), n):
            by = a.get(j, k)
            for i in walk.spans(j, n):
                a.put(i, j, minus_product(e.b, a.get(i, j), a.get(i, k), by))
    return is_definite.get()


RULES = {"cholesky": cholesky}
