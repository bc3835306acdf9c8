"""svd: singular values in descending order, and the vectors of both sides.

Columns are turned by pairs until all are orthogonal (Hestenes' one-sided Jacobi); their
sizes are the singular values, and the turns make up one orthogonal factor.  The other
is that of a QR factorisation of those columns, which is near to a diagonal matrix: it
is orthogonal where columns are zero, and has as many columns as are asked for.  A wide
matrix is done as its transpose.  A matrix with an element that is not finite has NaN
everywhere.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.convert import any_lane, intrinsic, like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg import jacobi
from onescan.emit.linalg.jacobi import InCells, plus_product
from onescan.emit.linalg.matrix import (
    Batch,
    Elements,
    InMemory,
    Walk,
    chosen,
    magnitude,
    over,
    root,
    same,
    times,
    width_at,
)
from onescan.emit.linalg.qr import orthogonal_product, reflect


def svd(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    x = e.once(operands[0])
    targets = [e.fresh(v) for v in eqn.outvars]
    if 0 in x.shape:
        of_nothing(e, targets[1:])
    else:
        solve(e, x, targets, eqn.params["full_matrices"])
    return targets


def solve(
    e: Emitter,
    x: Array,
    targets: list[Array],
    full: bool,
    most: int = jacobi.UNROLLED,
) -> None:
    """Put those of x where they belong; loops over up to `most` rows are written
    out."""
    problem = _Problem(e, x, targets, full, most)
    values, cost = targets[0], int(problem.operations)
    batch, lanes = values.shape[:-1], values.lanes[:-1]
    e.nest_in_order(batch, lanes, problem.visit, values, None, cost)


def of_nothing(e: Emitter, targets: list[Array], diagonal: int = 1) -> None:
    """Any orthogonal matrices: those of no turns."""
    for target in targets:
        kind = ty.register_type(target.dtype)
        one, zero = (ty.constant(kind, v) for v in (diagonal, 0))
        memory: Any = target.memory
        e.nest(
            target.shape,
            target.lanes,
            lambda i, memory=memory: memory.store(
                e.b, i, same(e, i[-2], i[-1], one, zero)
            ),
            None,
        )


class _Problem:
    """Matrices with no more columns than rows, and where their factors go."""

    def __init__(
        self, e: Emitter, x: Array, targets: list[Array], full: bool, most: int
    ) -> None:
        self.e, self.x = e, x
        self.wide = x.shape[-2] < x.shape[-1]
        columns, rows = self.columns, self.rows = sorted(x.shape[-2:])
        self.asked_for = rows if full else columns
        self.values: Any = targets[0].memory
        self.sides: list[Any] = [t.memory for t in targets[1:]]
        self.operations = 7 * columns**2 * (5 * rows + 2 * columns)
        walk = self.walk = Walk(e, rows, self.operations / 7, most)
        walk.width = 1
        self.room: Any = None
        self.scales: Any = None
        if not walk.unrolled:
            front, lanes = x.shape[:-2], x.lanes[:-2]
            shape = (*front, rows, columns)
            self.room = e.scratch(shape, (*lanes, None, None), x.dtype)
            self.scales = e.scratch((*front, columns), (*lanes, None), x.dtype)

    def _places(self, batch: Batch, i: Index, j: Index, swapped: bool) -> Any:
        return (*batch, j, i) if swapped else (*batch, i, j)

    def visit(self, batch: Batch) -> None:
        e, b, walk = self.e, self.e.b, self.walk
        rows, columns, wide = self.rows, self.columns, self.wide
        left: Any = None  # what is made of the columns, and of the turns
        right: Any = None
        if walk.unrolled:
            a: Elements = InCells(walk)
            sizes: Elements = InCells(walk)
            scales: Elements = InCells(walk)
            left, right = InCells(walk), InCells(walk)
        else:
            a = InMemory(e, self.room, lambda i, j: (*batch, i, j))
            sizes = InMemory(e, self.values, lambda i, j: (*batch, i))
            scales = InMemory(e, self.scales, lambda i, j: (*batch, i))
            if self.sides:
                u, v = reversed(self.sides) if wide else self.sides
                left = InMemory(e, u, lambda i, j: self._places(batch, i, j, wide))
                right = InMemory(e, v, lambda i, j: self._places(batch, i, j, not wide))

        def given(i: Index, j: Index) -> ty.Value:
            place = self._places(batch, i, j, wide)
            return ty.splat(b, self.x.at(place), width_at(batch))

        def all_given() -> Any:
            for i in walk.each(0, rows):
                for j in walk.each(0, columns):
                    yield given(i, j)

        size = jacobi.largest(walk, all_given(), given(0, 0))
        unit = jacobi.unit_of(b, size)
        squares = walk.cell(like(size, 0))
        for j in walk.each(0, columns):
            for i in walk.each(0, rows):
                value = over(b, given(i, j), unit)
                a.put(i, j, value)
                squares.set(plus_product(b, squares.get(), value, value))
            for i in walk.each(0, columns if self.sides else 0):
                right.put(i, j, same(e, i, j, like(size, 1), like(size, 0)))
        whole = root(b, squares.get())
        self._orthogonalise(a, right, whole)
        for j in walk.each(0, columns):
            sizes.put(j, 0, root(b, _dot(walk, a, rows, j, j)))
        moved = [(a, rows), (right, columns)] if self.sides else []
        jacobi.in_order(walk, columns, sizes, moved, ">")
        good, nan = jacobi.is_finite(b, size), like(size, float("nan"))
        for j in walk.each(0, columns):
            value = times(b, sizes.get(j, 0), unit)
            self.values.store(b, (*batch, j), chosen(b, good, value, nan))
        if not self.sides:
            return
        reflect(walk, a, scales, rows, columns)
        shape = (rows, self.asked_for)
        orthogonal_product(walk, a, scales, left, shape, columns)
        for j in walk.each(0, columns):
            sign = intrinsic(b, "llvm.copysign", like(size, 1), a.get(j, j))
            for i in walk.each(0, rows):
                left.put(i, j, times(b, left.get(i, j), sign))
        u, v = reversed(self.sides) if wide else self.sides
        for memory, made, (n, m), swapped in (
            (u, left, shape, wide),
            (v, right, (columns, columns), not wide),
        ):
            for i in walk.each(0, n):
                for j in walk.each(0, m):
                    place = self._places(batch, i, j, swapped)
                    memory.store(b, place, chosen(b, good, made.get(i, j), nan))

    def _orthogonalise(self, a: Elements, turned: Any, whole: ty.Value) -> None:
        """Turn columns until the product of two is as small as rounding leaves it."""
        b, walk = self.e.b, self.walk
        rows, columns = self.rows, self.columns
        eps = float(np.finfo(self.x.dtype).eps)
        relative = like(whole, sqrt(rows) * eps)
        least = times(b, whole, like(whole, eps / (4 * columns)))

        def visit(p: Index, q: Index) -> ty.Value:
            first, joint, last = _products(walk, a, rows, p, q)
            sizes = root(b, first), root(b, last)
            larger = b.fcmp_ordered(">", *sizes)
            limits = (
                times(b, times(b, *sizes), relative),
                times(b, b.select(larger, *sizes), least),
            )
            over_both = [b.fcmp_ordered(">", magnitude(b, joint), m) for m in limits]
            wanted = b.and_(*over_both)
            with b.if_then(any_lane(b, wanted)):
                by = jacobi.rotation(b, b.fsub(last, first), joint, wanted)
                for k in walk.each(0, rows):
                    jacobi.turn(walk, by, a, (k, p), (k, q))
                for k in walk.each(0, columns if self.sides else 0):
                    jacobi.turn(walk, by, turned, (k, p), (k, q))
            return wanted

        about = jacobi.expected_sweeps(columns)
        jacobi.sweeps(walk, columns, visit, about)


def _dot(walk: Walk, a: Elements, rows: int, p: Index, q: Index) -> ty.Value:
    b = walk.e.b
    total = walk.cell(like(a.get(0, 0), 0))
    for k in walk.each(0, rows):
        total.set(plus_product(b, total.get(), a.get(k, p), a.get(k, q)))
    return total.get()


def _products(walk: Walk, a: Elements, rows: int, p: Index, q: Index) -> Any:
    """Of column p with itself, of both, and of column q with itself."""
    b = walk.e.b
    totals = [walk.cell(like(a.get(0, 0), 0)) for _ in range(3)]
    for k in walk.each(0, rows):
        x, y = a.get(k, p), a.get(k, q)
        for total, pair in zip(totals, ((x, x), (x, y), (y, y)), strict=True):
            total.set(plus_product(b, total.get(), *pair))
    return [total.get() for total in totals]


RULES = {"svd": svd}
