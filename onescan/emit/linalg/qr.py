"""qr: Householder reflections, column by column, and their product.

geqrf leaves the reflections as LAPACK packs them, and ormqr multiplies by them.

Signs are LAPACK's: a column becomes minus its size, with the sign of its first element;
one that is zero below the diagonal is left as it is.
"""

from __future__ import annotations

from typing import Any

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, as_value
from onescan.emit.convert import intrinsic, like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg.matrix import (
    Batch,
    Elements,
    Given,
    InMemory,
    InRegisters,
    Walk,
    after,
    magnitude,
    matrix_by_matrix,
    minus_product,
    over,
    reciprocal,
    root,
    same,
    times,
    width_at,
)

#: rows up to which all loops are written out
UNROLLED = 5


def qr(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    (x,) = operands
    q, r = targets = [e.fresh(v) for v in eqn.outvars]
    rows, columns = x.shape[-2:]
    steps = min(rows, columns)
    if 0 in x.shape:
        return targets
    operations = 2 * rows * columns * steps + 2 * rows * q.shape[-1] * steps
    walk = Walk(e, max(rows, columns), operations, UNROLLED)
    walk.width = 1
    front, lanes = q.shape[:-2], q.lanes[:-2]
    room: Any = None
    scales: Any = None
    if not walk.unrolled:
        room = e.scratch((*front, rows, columns), (*lanes, None, None), x.dtype)
        scales = e.scratch((*front, steps), (*lanes, None), x.dtype)
    orthogonal: Any = q.memory
    upper: Any = r.memory

    def visit(batch: Batch) -> None:
        if walk.unrolled:
            a: Elements = InRegisters()
            tau: Elements = InRegisters()
            made: Elements = InRegisters()
        else:
            a = InMemory(e, room, lambda i, j: (*batch, i, j))
            tau = InMemory(e, scales, lambda i, j: (*batch, i))
            made = InMemory(e, orthogonal, lambda i, j: (*batch, i, j))
        kind = ty.register_type(x.dtype)
        zero = ty.constant(kind, 0)
        for i in walk.each(0, rows):
            for j in walk.each(0, columns):
                a.put(i, j, ty.splat(e.b, x.at((*batch, i, j)), width_at(batch)))
        reflect(walk, a, tau, rows, columns)
        orthogonal_product(walk, a, tau, made, (rows, q.shape[-1]), steps)
        if walk.unrolled:
            for i in range(rows):
                for j in range(q.shape[-1]):
                    orthogonal.store(e.b, (*batch, i, j), made.get(i, j))
        for i in walk.each(0, r.shape[-2]):
            for j in walk.each(0, smaller(e, i, columns)):
                upper.store(e.b, (*batch, i, j), zero)
            for j in walk.each(i, columns):
                upper.store(e.b, (*batch, i, j), a.get(i, j))

    matrix_by_matrix(e, q, visit, operations)
    return targets


def geqrf(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    """Reflections below an upper triangular matrix, and their scales."""
    (x,) = operands
    packed, scales = targets = [e.fresh(v) for v in eqn.outvars]
    rows, columns = x.shape[-2:]
    if 0 in x.shape:
        return targets
    operations = 2 * rows * columns * min(rows, columns)
    walk = Walk(e, max(rows, columns), operations, UNROLLED)
    walk.width = 1
    factor: Any = packed.memory
    taus: Any = scales.memory

    def visit(batch: Batch) -> None:
        a = InMemory(e, factor, lambda i, j: (*batch, i, j))
        tau = InMemory(e, taus, lambda i, j: (*batch, i))
        for i in walk.each(0, rows):
            for j in walk.each(0, columns):
                a.put(i, j, ty.splat(e.b, x.at((*batch, i, j)), width_at(batch)))
        reflect(walk, a, tau, rows, columns)

    matrix_by_matrix(e, packed, visit, operations)
    return targets


def ormqr(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    """A matrix multiplied from the left by packed reflections, or backwards."""
    packed, scales, x = (e.once(operand) for operand in operands)
    target = e.fresh(eqn.outvars[0])
    (rows, columns), steps = x.shape[-2:], scales.shape[-1]
    if 0 in x.shape:
        return [target]
    operations = 2 * rows * columns * steps
    walk = Walk(e, max(rows, columns), operations, UNROLLED)
    walk.width = 1
    product: Any = target.memory

    def visit(batch: Batch) -> None:
        a = Given(e, packed, lambda i, j: (*batch, i, j))
        tau = Given(e, scales, lambda i, j: (*batch, i))
        made = InMemory(e, product, lambda i, j: (*batch, i, j))
        for i in walk.each(0, rows):
            for j in walk.each(0, columns):
                made.put(i, j, ty.splat(e.b, x.at((*batch, i, j)), width_at(batch)))
        for t in walk.each(0, steps):
            k = t if eqn.params["transpose"] else from_last(e, t, steps)
            for j in walk.each(0, columns):
                _apply(walk, a, made, tau, k, j, rows)

    matrix_by_matrix(e, target, visit, operations)
    return [target]


def from_last(e: Emitter, t: Index, steps: int) -> Index:
    last = steps - 1
    return last - t if isinstance(t, int) else e.b.sub(as_value(e.b, last), t)


def reflect(walk: Walk, a: Elements, tau: Elements, rows: int, columns: int) -> None:
    """Make `a` upper triangular; reflections are left below it, their scales in tau."""
    for k in walk.each(0, min(rows, columns)):
        tau.put(k, 0, _reflect(walk, a, k, rows))
        for j in walk.each(after(walk.e, k), columns):
            _apply(walk, a, a, tau, k, j, rows)


def orthogonal_product(
    walk: Walk,
    a: Elements,
    tau: Elements,
    made: Elements,
    shape: tuple[int, int],
    steps: int,
) -> None:
    """The first columns of the product of reflections."""
    e, (rows, columns) = walk.e, shape
    some = a.get(0, 0)
    for i in walk.each(0, rows):
        for j in walk.each(0, columns):
            made.put(i, j, same(e, i, j, like(some, 1), like(some, 0)))
    for t in walk.each(0, steps):
        k = from_last(e, t, steps)
        for j in walk.each(k, columns):
            _apply(walk, a, made, tau, k, j, rows)


def smaller(e: Emitter, i: Index, n: int) -> Index:
    if isinstance(i, int):
        return min(i, n)
    most = as_value(e.b, n)
    return e.b.select(e.b.icmp_signed("<", i, most), i, most)


def _reflect(walk: Walk, a: Elements, k: Index, rows: int) -> ty.Value:
    """Make column k a multiple of a unit vector; the vector of the reflection is left
    below the diagonal, and its scale is given back."""
    e, b = walk.e, walk.e.b
    first = a.get(k, k)
    largest = walk.cell(magnitude(b, first))
    below = walk.cell(like(first, 0))
    for i in walk.each(after(e, k), rows):
        size = magnitude(b, a.get(i, k))
        larger = b.fcmp_unordered(">", size, largest.get())
        largest.set(b.select(larger, size, largest.get()))
        below.set(b.fadd(below.get(), size))
    flat = b.fcmp_ordered("==", below.get(), like(first, 0))
    unit = b.select(flat, like(first, 1), largest.get())
    start = over(b, first, unit)
    squares = walk.cell(times(b, start, start))
    for i in walk.each(after(e, k), rows):
        part = over(b, a.get(i, k), unit)
        square = b.fmul(part, part, flags=el.CONTRACT)
        squares.set(b.fadd(squares.get(), square, flags=el.CONTRACT))
    norm = times(b, root(b, squares.get()), unit)
    turned = b.fneg(intrinsic(b, "llvm.copysign", norm, first))
    scale = b.select(flat, like(first, 0), over(b, b.fsub(turned, first), turned))
    inverse = reciprocal(b, b.fsub(first, turned))
    for i in walk.each(after(e, k), rows):
        value = a.get(i, k)
        a.put(i, k, b.select(flat, value, times(b, value, inverse)))
    a.put(k, k, b.select(flat, first, turned))
    return scale


def _apply(
    walk: Walk,
    vectors: Elements,
    to: Elements,
    scales: Elements,
    k: Index,
    j: Index,
    rows: int,
) -> None:
    """Reflect column j by reflection k."""
    e, b = walk.e, walk.e.b
    along = walk.cell(to.get(k, j))
    for i in walk.each(after(e, k), rows):
        part = b.fmul(vectors.get(i, k), to.get(i, j), flags=el.CONTRACT)
        along.set(b.fadd(along.get(), part, flags=el.CONTRACT))
    share = times(b, along.get(), scales.get(k, 0))
    to.put(k, j, b.fsub(to.get(k, j), share))
    for i in walk.each(after(e, k), rows):
        to.put(i, j, minus_product(b, to.get(i, j), share, vectors.get(i, k)))


RULES = {"geqrf": geqrf, "ormqr": ormqr, "qr": qr}
