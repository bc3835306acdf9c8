"""onescan_qr, onescan_geqrf, onescan_ormqr: reflections of complex matrices.

As `qr.py` has them for real ones; a matrix is two operands, its parts.
"""

from __future__ import annotations

from typing import Any

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.convert import like
from onescan.emit.emitter import Emitter
from onescan.emit.linalg.complex_matrix import (
    Complex,
    Numbers,
    Parts,
    Reflections,
    Room,
    given_at,
    in_memory,
    in_registers,
)
from onescan.emit.linalg.matrix import (
    Batch,
    Given,
    Walk,
    after,
    matrix_by_matrix,
    same,
)
from onescan.emit.linalg.qr import from_last, smaller

#: rows up to which all loops are written out
UNROLLED = 3


def qr(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    targets = [e.fresh(v) for v in eqn.outvars]
    q, r = targets[:2], targets[2:]
    (x, _), made_shape = operands, q[0].shape
    if 0 in x.shape:
        return targets
    rows, columns = x.shape[-2:]
    steps = min(rows, columns)
    operations = 8 * rows * steps * (columns + made_shape[-1])
    walk = Walk(e, max(rows, columns), operations, UNROLLED)
    walk.width = 1
    room: Any = None
    scales: Any = None
    if not walk.unrolled:
        room, scales = (Room(e, q[0], shape) for shape in ((rows, columns), (steps,)))
    unitary, upper = ([part.memory for part in both] for both in (q, r))

    def visit(batch: Batch) -> None:
        at = lambda i, j: (*batch, i, j)
        out = in_memory(e, unitary, at)
        triangle = in_memory(e, upper, at)
        if walk.unrolled:
            a, tau, made = in_registers(), in_registers(), in_registers()
        else:
            a, tau, made = room.at(batch), scales.at(batch), out
        for i in walk.each(0, rows):
            for j in walk.each(0, columns):
                a.put(i, j, given_at(e, operands, at(i, j)))
        by = Reflections(walk, a, tau, rows)
        triangular(by, a, columns)
        first_columns(by, made, made_shape[-1], steps)
        if walk.unrolled:
            for i in range(rows):
                for j in range(made_shape[-1]):
                    out.put(i, j, made.get(i, j))
        zero = ty.constant(ty.register_type(x.dtype), 0)
        for i in walk.each(0, r[0].shape[-2]):
            for j in walk.each(0, smaller(e, i, columns)):
                triangle.put(i, j, Complex(zero, zero))
            for j in walk.each(i, columns):
                triangle.put(i, j, a.get(i, j))

    matrix_by_matrix(e, q[0], visit, operations)
    return targets


def geqrf(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    """Reflections below an upper triangular matrix, and their scales."""
    targets = [e.fresh(v) for v in eqn.outvars]
    rows, columns = targets[0].shape[-2:]
    if 0 in targets[0].shape:
        return targets
    operations = 8 * rows * columns * min(rows, columns)
    walk = Walk(e, max(rows, columns), operations, UNROLLED)
    walk.width = 1
    packed, scales = ([t.memory for t in targets[k : k + 2]] for k in (0, 2))

    def visit(batch: Batch) -> None:
        a = in_memory(e, packed, lambda i, j: (*batch, i, j))
        tau = in_memory(e, scales, lambda i, j: (*batch, i))
        for i in walk.each(0, rows):
            for j in walk.each(0, columns):
                a.put(i, j, given_at(e, operands, (*batch, i, j)))
        triangular(Reflections(walk, a, tau, rows), a, columns)

    matrix_by_matrix(e, targets[0], visit, operations)
    return targets


def ormqr(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    """A matrix multiplied from the left by packed reflections, or backwards."""
    given = [e.once(operand) for operand in operands]
    packed, scales, x = given[:2], given[2:4], given[4:]
    targets = [e.fresh(v) for v in eqn.outvars]
    (rows, columns), steps = x[0].shape[-2:], scales[0].shape[-1]
    if 0 in x[0].shape:
        return targets
    operations = 8 * rows * columns * steps
    walk = Walk(e, max(rows, columns), operations, UNROLLED)
    walk.width = 1
    backwards = eqn.params["transpose"]

    def visit(batch: Batch) -> None:
        at = lambda i, j: (*batch, i, j)
        a = Parts(*(Given(e, part, at) for part in packed))
        tau = Parts(*(Given(e, part, lambda i, j: (*batch, i)) for part in scales))
        made = in_memory(e, [t.memory for t in targets], at)
        for i in walk.each(0, rows):
            for j in walk.each(0, columns):
                made.put(i, j, given_at(e, x, at(i, j)))
        multiply(Reflections(walk, a, tau, rows), made, columns, steps, backwards)

    matrix_by_matrix(e, targets[0], visit, operations)
    return targets


def triangular(by: Reflections, a: Numbers, columns: int) -> None:
    """Make `a`, where the vectors are left, upper triangular."""
    walk = by.walk
    for k in walk.each(0, min(by.rows, columns)):
        by.make(k)
        for j in walk.each(after(walk.e, k), columns):
            by.apply(a, k, j, backwards=True)


def multiply(
    by: Reflections, to: Numbers, columns: int, steps: int, backwards: bool = False
) -> None:
    """A matrix by the product of reflections, or by its conjugate transpose."""
    walk = by.walk
    for t in walk.each(0, steps):
        k = t if backwards else from_last(walk.e, t, steps)
        for j in walk.each(0, columns):
            by.apply(to, k, j, backwards)


def first_columns(by: Reflections, made: Numbers, columns: int, steps: int) -> None:
    """Those of the product of reflections."""
    walk, e = by.walk, by.walk.e
    some = by.vectors.get(0, 0).re
    one, zero = like(some, 1), like(some, 0)
    for i in walk.each(0, by.rows):
        for j in walk.each(0, columns):
            made.put(i, j, Complex(same(e, i, j, one, zero), zero))
    for t in walk.each(0, steps):
        k: Index = from_last(e, t, steps)
        for j in walk.each(k, columns):
            by.apply(made, k, j, backwards=False)


RULES = {"onescan_qr": qr, "onescan_geqrf": geqrf, "onescan_ormqr": ormqr}
