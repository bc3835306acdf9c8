"""QR by the threads of a block: Householder reflections, and products of them.

Each column stays in the registers of a few neighbours of a warp.  A reflection is
passed on as a vector in shared memory: whoever has the next column makes the next
reflection right after the last one, so that threads meet once for each.  Products need
no barriers, since reflections change every column by itself.

Signs are those of `emit.linalg.qr`.  Numbers whose squares are none are scaled by
powers of two, as in Blue's norm ("A portable Fortran program to find the Euclidean norm
of a vector", 1978).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, as_value
from onescan.emit.comparisons import maximum
from onescan.emit.convert import intrinsic, like
from onescan.emit.linalg import qr as one_qr
from onescan.emit.linalg.matrix import (
    magnitude,
    minus_product,
    over,
    reciprocal,
    root,
    same,
    times,
)
from onescan.loop import Equation
from onescan.plan.plan import Lane
from onescan.targets.nvidia.block_columns import Column, Columns, Groups
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_linalg import KEPT, is_shared
from onescan.targets.nvidia.warps import WARP

Batch = tuple[Index, ...]

#: for each size of a number, the exponents of 2 of what is small and what is large, and
#: of what such numbers are multiplied by
SCALES = {4: ((-40, 100), (40, -70)), 8: ((-300, 700), (300, -600))}


def shares(e: BlockEmitter, x: Array, columns: int) -> bool:
    """Whether threads share matrices, or others of so many columns."""
    *batch, rows, _ = x.shape
    if 0 in x.shape or not is_shared(e, max(rows, columns), prod(batch)):
        return False
    groups = Groups(e, prod(batch) * columns, rows)
    return groups.rounds * groups.each <= KEPT


def vector_room(rows: int) -> int:
    """What groups of any size read of a vector."""
    return -(-rows // WARP) * WARP


class Reflections:
    """Of matrices with so many rows: a vector for each, with its scale.

    A vector has zeros up to the diagonal, and one there.
    """

    def __init__(
        self,
        e: BlockEmitter,
        dtype: Any,
        front: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        rows: int,
        steps: int,
        room: Memory | None = None,
    ) -> None:
        """`room` is memory for the vectors, if there is some already."""
        self.e, self.dtype, self.front = e, dtype, front
        self.lanes, self.rows, self.steps = lanes, rows, steps
        shape = (*front, steps, vector_room(rows))
        self.vectors: Any = room or e.scratch(shape, (*lanes, None, None), dtype)
        self.scales: Any = e.scratch((*front, steps), (*lanes, None), dtype)

    def unpack(self, packed: Array, scales: Array) -> None:
        """Take those that LAPACK would leave below a triangle."""
        e, shape = self.e, (*self.front, self.steps, self.rows)

        def visit(place: Batch) -> None:
            (*batch, k, i), b = place, e.b
            value = packed.at((*batch, i, k))
            above = b.icmp_signed("<", as_value(b, i), as_value(b, k))
            value = b.select(above, like(value, 0), value)
            self.vectors.store(b, place, same(e, i, k, like(value, 1), value))

        e.nest(shape, (*self.lanes, None, None), visit)
        e.nest(
            scales.shape,
            scales.lanes,
            lambda i: self.scales.store(e.b, i, scales.at(i)),
        )

    def of(self, columns: Columns) -> None:
        """Make the matrix of these columns upper triangular; below are the vectors."""
        e = self.e
        with e.phase():
            for column in columns.each():
                self._make(column, ir.Constant(ty.I64, 0))
        if self.steps < 2:
            return
        with e.loop(self.steps - 1) as k, e.phase():
            for column in columns.each():
                later = e.b.icmp_signed(">", column.j, k)
                before = column.get()
                pairs = zip(self._reflected(column, k), before, strict=True)
                column.set([e.b.select(later, x, y) for x, y in pairs])
                self._make(column, e.b.add(k, ir.Constant(ty.I64, 1)))

    def multiply(self, columns: Columns, forwards: bool) -> None:
        """Reflect columns by all of them, from the first or from the last on.

        Part of a phase, in which nothing else happens to the reflections.
        """
        e = self.e
        with e.loop(self.steps) as t:
            k = t if forwards else e.b.sub(ir.Constant(ty.I64, self.steps - 1), t)
            for column in columns.each():
                column.set(self._reflected(column, k))

    def _reflected(self, column: Column, k: ty.Value) -> list[ty.Value]:
        b, groups = self.e.b, column.groups
        pairs = [
            (self._loaded(column, k, i), x)
            for i, x in zip(column.rows, column.get(), strict=True)
        ]
        along = groups.dot(pairs, self.dtype)
        share = times(b, along, self.scales.load(b, (*column.batch, k)))
        return [minus_product(b, x, share, v) for v, x in pairs]

    def _loaded(self, column: Column, k: ty.Value, i: ty.Value) -> ty.Value:
        """A row of vector k, or zero if the matrix has no such row."""
        b, value = self.e.b, self.vectors.load(self.e.b, (*column.batch, k, i))
        if self.rows % column.groups.parts == 0:
            return value
        return b.select(self.e.below(i, self.rows), value, like(value, 0))

    def _make(self, column: Column, k: ty.Value) -> None:
        """Make the reflection of column k, which all groups take theirs for."""
        b, groups, values = self.e.b, column.groups, column.get()
        zero = like(values[0], 0)
        is_first = [b.icmp_signed("==", i, k) for i in column.rows]
        is_below = [b.icmp_signed(">", i, k) for i in column.rows]
        parts = zip(is_first, values, strict=True)
        first = groups.total([b.select(m, x, zero) for m, x in parts], self.dtype)
        below = [b.select(m, x, zero) for m, x in zip(is_below, values, strict=True)]
        largest = groups.largest([magnitude(b, x) for x in below], self.dtype)
        flat = b.fcmp_ordered("==", largest, zero)
        largest = maximum(b, self.dtype, largest, magnitude(b, first))
        up, down = self._scale(largest)
        start, below = times(b, first, up), [times(b, x, up) for x in below]
        squares = groups.dot([(x, x) for x in below], self.dtype)
        norm = root(b, b.fadd(squares, times(b, start, start)))
        norm = intrinsic(b, "llvm.copysign", norm, first)
        scale = over(b, b.fadd(norm, start), norm)
        inverse = reciprocal(b, b.fadd(start, norm))
        vector = [b.select(flat, zero, times(b, x, inverse)) for x in below]
        turned = b.select(flat, first, b.fneg(times(b, norm, down)))
        here = b.and_(column.is_one, b.icmp_signed("==", column.j, k))
        with b.if_then(here):
            one = like(zero, 1)
            for i, v, mark in zip(column.rows, vector, is_first, strict=True):
                place = (*column.batch, k, i)
                self.vectors.store(b, place, b.select(mark, one, v))
            with b.if_then(b.icmp_signed("==", groups.part, ir.Constant(ty.I64, 0))):
                scale = b.select(flat, zero, scale)
                self.scales.store(b, (*column.batch, k), scale)
        new = [
            b.select(diagonal, turned, b.select(lower, v, x))
            for diagonal, lower, v, x in zip(
                is_first, is_below, vector, values, strict=True
            )
        ]
        is_k = b.icmp_signed("==", column.j, k)
        column.set([b.select(is_k, x, y) for x, y in zip(new, values, strict=True)])

    def _scale(self, size: ty.Value) -> tuple[ty.Value, ty.Value]:
        """What numbers up to `size` are multiplied by, and what makes up for it."""
        b, up, down = self.e.b, like(size, 1), like(size, 1)
        (low, more), (high, less) = SCALES[np.dtype(self.dtype).itemsize]
        for sign, limit, by in (("<", low, more), (">", high, less)):
            far = b.fcmp_ordered(sign, size, like(size, 2.0**limit))
            up = b.select(far, like(size, 2.0**by), up)
            down = b.select(far, like(size, 2.0**-by), down)
        return up, down


def orthogonal(
    e: BlockEmitter,
    reflections: Reflections,
    count: int,
    put: Callable[[Batch, Index, Index, ty.Value], None],
) -> None:
    """The first columns of the product of reflections, to be put away."""
    dtype, rows = reflections.dtype, reflections.rows
    made = Columns(e, dtype, (*reflections.front, count), rows)
    one, zero = (ty.constant(ty.register_type(dtype), v) for v in (1, 0))
    with e.phase():
        made.load(lambda batch, i, j: same(e, i, j, one, zero))
        reflections.multiply(made, forwards=False)
        made.store(rows, put)


def _reflected(e: BlockEmitter, x: Array) -> tuple[Columns, Reflections]:
    """The columns of a matrix, made triangular, and how."""
    *front, rows, columns = x.shape
    batch, lanes = tuple(front), x.lanes[:-2]
    a = Columns(e, x.dtype, (*batch, columns), rows)
    steps = min(rows, columns)
    reflections = Reflections(e, x.dtype, batch, lanes, rows, steps)
    with e.phase():
        a.load(lambda batch, i, j: x.at((*batch, i, j)))
    reflections.of(a)
    return a, reflections


def qr(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,) = operands
    width = e.plan.local_shape(eqn.outvars[0])[-1]
    if min(x.shape[-2:]) < 2 or not shares(e, x, max(width, x.shape[-1])):
        return one_qr.qr(e, eqn, operands)
    q, r = targets = [e.fresh(v) for v in eqn.outvars]
    a, reflections = _reflected(e, x)
    upper: Any = r.memory
    made: Any = q.memory
    zero = ty.constant(ty.register_type(x.dtype), 0)

    def put_upper(batch: Batch, i: Index, j: Index, value: ty.Value) -> None:
        above = e.b.icmp_signed("<=", i, j)
        upper.store(e.b, (*batch, i, j), e.b.select(above, value, zero))

    with e.phase():
        a.store(r.shape[-2], put_upper)
    orthogonal(e, reflections, width, _into(e, made))
    return targets


def geqrf(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,) = operands
    if min(x.shape[-2:]) < 2 or not shares(e, x, x.shape[-1]):
        return one_qr.geqrf(e, eqn, operands)
    packed, scales = targets = [e.fresh(v) for v in eqn.outvars]
    a, reflections = _reflected(e, x)
    factor: Any = packed.memory
    taus: Any = scales.memory
    with e.phase():
        a.store(x.shape[-2], _into(e, factor))
    e.nest(
        scales.shape,
        scales.lanes,
        lambda i: taus.store(e.b, i, reflections.scales.load(e.b, i)),
    )
    return targets


def ormqr(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    packed, scales, x = operands
    (*front, rows, columns), steps = x.shape, scales.shape[-1]
    if steps < 2 or not shares(e, x, columns):
        return one_qr.ormqr(e, eqn, operands)
    target = e.fresh(eqn.outvars[0])
    batch, lanes = tuple(front), x.lanes[:-2]
    reflections = Reflections(e, x.dtype, batch, lanes, rows, steps)
    reflections.unpack(packed, scales)
    columns = Columns(e, x.dtype, (*batch, columns), rows)
    product: Any = target.memory
    with e.phase():
        columns.load(lambda batch, i, j: x.at((*batch, i, j)))
        reflections.multiply(columns, forwards=eqn.params["transpose"])
        columns.store(rows, _into(e, product))
    return [target]


def _into(
    e: BlockEmitter, memory: Memory
) -> Callable[[Batch, Index, Index, ty.Value], None]:
    return lambda batch, i, j, value: memory.store(e.b, (*batch, i, j), value)


RULES = {"geqrf": geqrf, "ormqr": ormqr, "qr": qr}
