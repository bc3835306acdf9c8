"""eigh: eigenvalues of symmetric matrices in ascending order, and their vectors.

Only one triangle is read.  An element is turned away as long as it is larger than a
unit in the last place of the whole matrix, divided by the number of its columns: what
is left then is less than rounding.  A matrix with an element that is not finite has
NaN everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.convert import any_lane, like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg.jacobi import (
    UNROLLED,
    InCells,
    expected_sweeps,
    in_order,
    is_finite,
    largest,
    plus_product,
    rotation,
    sweeps,
    turn,
    unit_of,
)
from onescan.emit.linalg.matrix import (
    Batch,
    Elements,
    InMemory,
    Walk,
    after,
    chosen,
    magnitude,
    matrix_by_matrix,
    minus_product,
    over,
    root,
    same,
    times,
    width_at,
)


def eigh(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    x = e.once(operands[0])
    vectors, values = targets = [e.fresh(v) for v in eqn.outvars]
    if 0 not in vectors.shape:
        solve(e, x, vectors, values, eqn.params["lower"])
    return targets


def solve(
    e: Emitter,
    x: Array,
    vectors: Array,
    values: Array,
    lower: bool,
    most: int = UNROLLED,
) -> None:
    """Put those of x where they belong; its lower or its upper triangle is read.

    Loops over up to `most` columns are written out.
    """
    n = vectors.shape[-1]
    about = expected_sweeps(n)
    operations = 10 * n**3
    walk = Walk(e, n, operations, most)
    walk.width = 1
    room: Any = None
    if not walk.unrolled:
        lanes = (*vectors.lanes[:-2], None, None)
        room = e.scratch(vectors.shape, lanes, x.dtype)
    made: Any = vectors.memory
    found: Any = values.memory

    def visit(batch: Batch) -> None:
        b, width = e.b, width_at(batch)
        if walk.unrolled:
            a: Elements = InCells(walk)
            v: Elements = InCells(walk)
            diagonal: Elements = InCells(walk)
        else:
            a = InMemory(e, room, lambda i, j: (*batch, i, j))
            v = InMemory(e, made, lambda i, j: (*batch, i, j))
            diagonal = InMemory(e, found, lambda i, j: (*batch, i))

        def given(i: Index, j: Index) -> ty.Value:
            place = (*batch, i, j) if lower else (*batch, j, i)
            return ty.splat(b, x.at(place), width)

        size = largest(walk, _triangle(walk, n, given), given(0, 0))
        unit = unit_of(b, size)
        squares = walk.cell(like(size, 0))
        for i in walk.each(0, n):
            for j in walk.each(0, after(e, i)):
                value = over(b, given(i, j), unit)
                a.put(i, j, value)
                squares.set(plus_product(b, squares.get(), value, value))
            for j in walk.each(0, n):
                v.put(i, j, same(e, i, j, like(size, 1), like(size, 0)))
        eps = float(np.finfo(x.dtype).eps)
        limit = times(b, root(b, squares.get()), like(size, eps / (2 * n)))
        sweeps(walk, n, lambda p, q: _turn(walk, a, v, n, p, q, limit), about)
        for i in walk.each(0, n):
            diagonal.put(i, 0, times(b, a.get(i, i), unit))
        in_order(walk, n, diagonal, [(v, n)], "<")
        good, nan = is_finite(b, size), like(size, float("nan"))
        for i in walk.each(0, n):
            found.store(b, (*batch, i), chosen(b, good, diagonal.get(i, 0), nan))
            for j in walk.each(0, n):
                made.store(b, (*batch, i, j), chosen(b, good, v.get(i, j), nan))

    matrix_by_matrix(e, vectors, visit, operations)


def _triangle(walk: Walk, n: int, given: Any) -> Any:
    for i in walk.each(0, n):
        for j in walk.each(0, after(walk.e, i)):
            yield given(i, j)


def _turn(
    walk: Walk,
    a: Elements,
    v: Elements,
    n: int,
    p: Index,
    q: Index,
    limit: ty.Value,
) -> ty.Value:
    """Make element (q, p) zero, and tell where that was needed."""
    e, b = walk.e, walk.e.b
    joint = a.get(q, p)
    wanted = b.fcmp_ordered(">", magnitude(b, joint), limit)
    with b.if_then(any_lane(b, wanted)):
        first, last = a.get(p, p), a.get(q, q)
        by = rotation(b, b.fsub(last, first), joint, wanted)
        a.put(p, p, minus_product(b, first, by.tangent, joint))
        a.put(q, q, plus_product(b, last, by.tangent, joint))
        a.put(q, p, b.select(wanted, like(joint, 0), joint))
        for k in walk.each(0, p):
            turn(walk, by, a, (p, k), (q, k))
        for k in walk.each(after(e, p), q):
            turn(walk, by, a, (k, p), (q, k))
        for k in walk.each(after(e, q), n):
            turn(walk, by, a, (k, p), (k, q))
        for k in walk.each(0, n):
            turn(walk, by, v, (k, p), (k, q))
    return wanted


RULES = {"eigh": eigh}
