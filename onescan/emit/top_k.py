"""top_k: the k largest along an axis, and where they stand.

A list of the k largest so far is kept in order; what is smaller than its last number is
passed over, a vector at a time, and that is most of what there is.  Many are found by
sorting everything, and so are all by a block of GPU threads, which share exchanges.
Numbers stand in IEEE's total order, as XLA has them here: NaN before inf, 0 before -0,
and -NaN last; of equal ones the first comes first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Vec, as_value, scale
from onescan.emit.bitonic import Bitonic, Column, without
from onescan.emit.convert import any_lane, like
from onescan.emit.emitter import Emitter, opaque
from onescan.emit.linalg.matrix import width_at
from onescan.emit.sort import positions
from onescan.plan.plan import is_across
from onescan.primitives.reductions import FEW


def top_k(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    x = e.materialise(operands[0])
    axis, k = eqn.params["axis"] % len(x.shape), eqn.params["k"]
    values, indices = eqn.outvars
    if 0 in x.shape or not k:
        return [e.fresh(v) for v in eqn.outvars]
    together = e.plan.grid is not None and e.plan.grid.together
    if k > FEW or together:
        return _by_sorting(e, eqn, x, axis)
    targets = [e.fresh(values), e.fresh(indices)]
    _one_by_one(e, targets, x, axis, k)
    return targets


def rank(b: ty.Builder, x: ty.Value, dtype: Any) -> ty.Value:
    """A signed integer that is larger where a number comes before others."""
    if ty.is_float(dtype):
        bits = 64 if ty.element_type(x) == ty.F64 else 32
        number = b.bitcast(x, ty.with_width(ir.IntType(bits), ty.width_of(x)))
        mirrored = b.xor(number, like(number, (1 << (bits - 1)) - 1))
        negative = b.icmp_signed("<", number, like(number, 0))
        return b.select(negative, mirrored, number)
    if ty.is_signed(dtype):
        return x
    return b.xor(x, like(x, 1 << (8 * np.dtype(dtype).itemsize - 1)))


def _lowest(kind: ty.Kind) -> int:
    return -(1 << (kind.width - 1))


Ranked = tuple[ty.Value, ty.Value]


def _precedes(b: ty.Builder, x: Ranked, y: Ranked) -> ty.Value:
    first = b.icmp_signed("<", x[1], y[1])
    equal = b.and_(b.icmp_signed("==", x[0], y[0]), first)
    return b.or_(b.icmp_signed(">", x[0], y[0]), equal)


class _Found:
    """The k largest so far, in order: their ranks and places."""

    def __init__(self, e: Emitter, kind: ty.Kind, k: int, n: int, width: int) -> None:
        self.e, self.k, self.width = e, k, width
        kinds = [ty.with_width(element, width) for element in (kind, ty.I32)]
        self.cells = [
            (opaque(e.entry.alloca(ir.ArrayType(element, k))), element)
            for element in kinds
        ]
        nothing = ty.constant(kind, _lowest(kind), width), ty.constant(ty.I32, n, width)
        with e.loop(k) as j:
            self.put(j, nothing)

    def _at(self, cell: tuple[ty.Value, Any], j: Index) -> ty.Value:
        pointer, kind = cell
        return self.e.b.gep(pointer, [as_value(self.e.b, j)], source_etype=kind)

    def get(self, j: Index) -> Ranked:
        rank, place = (
            self.e.b.load(self._at(cell, j), typ=cell[1]) for cell in self.cells
        )
        return rank, place

    def put(self, j: Index, value: Ranked) -> None:
        for cell, part in zip(self.cells, value, strict=True):
            self.e.b.store(part, self._at(cell, j))

    def insert(self, new: Ranked) -> None:
        """Let everything after a number move on by one, and the last one go."""
        b, held = self.e.b, [self.get(j) for j in range(self.k)]
        first = [_precedes(b, new, other) for other in held]
        for j in range(self.k):
            kept = zip(new, held[j], strict=True)
            rank, place = (b.select(first[j], x, y) for x, y in kept)
            if j:  # where it is further up, the one before comes down
                down = zip(held[j - 1], (rank, place), strict=True)
                rank, place = (b.select(first[j - 1], x, y) for x, y in down)
            self.put(j, (rank, place))


def _one_by_one(e: Emitter, targets: list[Array], x: Array, axis: int, k: int) -> None:
    n = x.shape[axis]
    width = e.plan.inner_width  # along what is looked at, if above 1
    if is_across(x.lanes) or n < width:
        width = 1
    values: Any = targets[0].memory
    indices: Any = targets[1].memory
    others, lanes = without(x.shape, axis), without(x.lanes, axis)

    def visit(batch: tuple[Index, ...]) -> None:
        b, wide = e.b, width_at(batch)
        at = lambda i: (*batch[:axis], i, *batch[axis:])

        def number(i: Any, width: int) -> Ranked:
            place = b.trunc(as_value(b, i), ty.with_width(ty.I32, _width_of(i)))
            value = rank(b, x.at(at(i)), x.dtype)
            return ty.splat(b, value, width), ty.splat(b, place, width)

        kind = ty.element_type(rank(b, x.at(at(0)), x.dtype))
        found = _Found(e, kind, k, n, wide)

        def look(i: Any, width: int) -> ty.Value:
            """Whether a number is one of the k largest so far, in any lane."""
            worst = [ty.splat(b, v, width) for v in found.get(k - 1)]
            return any_lane(b, _precedes(b, number(i, width), (worst[0], worst[1])))

        def consider(i: Any) -> None:
            with b.if_then(look(i, wide), likely=False):  # most are smaller
                found.insert(number(i, wide))

        whole = n // width if width > 1 else 0
        if whole:
            with e.loop(whole) as block:
                start = as_value(b, scale(b, block, width))
                with (
                    b.if_then(look(Vec(start, width), width)),
                    e.loop(width, about=1) as lane,
                ):
                    consider(b.add(start, lane))
        if whole * width < n:
            with e.loop(n - whole * width) as i:
                consider(b.add(i, ty.constant(ty.I64, whole * width)))
        with e.loop(k) as j:
            place = found.get(j)[1]
            indices.store(b, at(j), place)
            far = b.zext(place, ty.with_width(ty.I64, wide))
            values.store(b, at(j), x.at(at(far)))

    e.nest_in_order(others, lanes, visit, targets[0], None, e.unrolled_operations)


def _width_of(i: Any) -> int:
    return i.width if isinstance(i, Vec) else 0


def _by_sorting(e: Emitter, eqn: Any, x: Array, axis: int) -> list[Array]:
    values, indices = eqn.outvars
    others, lanes = without(x.shape, axis), without(x.lanes, axis)
    pulled = lambda place: x.at((*place[:axis], place[-1], *place[axis:-1]))
    zero = float("nan") if ty.is_float(x.dtype) else 0
    columns = [Column(x.dtype, pulled, zero), positions(e, x.shape[axis])]
    n = ty.constant(ty.I32, x.shape[axis])

    def before(a: list[ty.Value], c: list[ty.Value]) -> ty.Value:
        """By rank, then by place; what was filled in comes last."""
        b = e.b
        ranks = (rank(b, v[0], x.dtype) for v in (a, c))
        ordered = _precedes(b, *zip(ranks, (a[1], c[1]), strict=True))  # type: ignore[arg-type]
        end = ty.splat(b, n, ty.width_of(a[1]))
        real, other = (b.icmp_signed("<", v[1], end) for v in (a, c))
        return b.and_(real, b.or_(ordered, b.not_(other)))

    rows = Bitonic(e, others, lanes, x.shape[axis], columns, before).rows
    found = []
    for row, out in zip(rows, (values, indices), strict=True):
        *front, last = row.strides
        strides = (*front[:axis], last, *front[axis:])
        shape, along = e.plan.local_shape(out), e.plan.local_lanes(out)
        found.append(e.stored(replace(row, strides=strides), shape, along))
    return found


RULES = {"top_k": top_k}
