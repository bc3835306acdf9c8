"""triangular_solve: unknowns one after the other, each from those before it.

All sides, transposes and triangles are one problem, M X = B with M lower or upper: a
matrix on the other side is a transposed one.  Columns of B are independent, so vectors
may lie along them.
"""

from __future__ import annotations

from typing import Any

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, as_value
from onescan.emit.emitter import Emitter
from onescan.emit.linalg.matrix import (
    Walk,
    minus_product,
    over,
    reciprocal,
    times,
    width_at,
)


def triangular_solve(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    a, b = e.once(operands[0]), operands[1]
    target = e.fresh(eqn.outvars[0])
    if 0 in target.shape:
        return [target]
    left, unit = eqn.params["left_side"], eqn.params["unit_diagonal"]
    swapped = eqn.params["transpose_a"] == left
    downwards = eqn.params["lower"] != swapped
    rank = len(target.shape)
    row, column = (rank - 2, rank - 1) if left else (rank - 1, rank - 2)
    n = target.shape[row]
    walk = Walk(e, n, n * n)
    memory: Any = target.memory

    def at(place: tuple[Index, ...], i: Index) -> tuple[Index, ...]:
        """Where unknown i of a column stands."""
        *batch, c = place
        return (*batch, i, c) if left else (*batch, c, i)

    def coefficient(place: tuple[Index, ...], i: Index, j: Index) -> ty.Value:
        return a.at((*place[:-1], j, i) if swapped else (*place[:-1], i, j))

    def number(k: Index) -> Index:
        """The unknown that is solved for as the k-th."""
        if downwards:
            return k
        if isinstance(k, int):
            return n - 1 - k
        return e.b.sub(as_value(e.b, n - 1), k)

    several = target.shape[column] > 1 and not unit
    inverses: Any = None
    if several:  # each is used for many columns
        lanes = (*target.lanes[:-2], None)
        inverses = e.scratch((*target.shape[:-2], n), lanes, target.dtype)

        def invert(place: tuple[Index, ...]) -> None:
            diagonal = coefficient(place, place[-1], place[-1])
            inverses.store(e.b, place, reciprocal(e.b, diagonal))

        e.nest((*target.shape[:-2], n), lanes, invert, None)

    def visit(place: tuple[Index, ...]) -> None:
        solved: dict[Any, ty.Value] = {}
        for k in walk.each(0, n):
            i = number(k)
            left_over = walk.cell(ty.splat(e.b, b.at(at(place, i)), width_at(place)))
            for t in walk.each(0, k):
                j = number(t)
                x = solved[j] if walk.unrolled else memory.load(e.b, at(place, j))
                by = coefficient(place, i, j)
                left_over.set(minus_product(e.b, left_over.get(), x, by))
            x = left_over.get()
            if several:
                x = times(e.b, x, inverses.load(e.b, (*place[:-1], i)))
            elif not unit:
                x = over(e.b, x, coefficient(place, i, i))
            solved[i] = x
            memory.store(e.b, at(place, i), x)

    shape = (*target.shape[:-2], target.shape[column])
    lanes = (*target.lanes[:-2], target.lanes[column])
    e.nest(shape, lanes, visit, len(shape) - 1, n * n)
    return [target]


RULES = {"triangular_solve": triangular_solve}
