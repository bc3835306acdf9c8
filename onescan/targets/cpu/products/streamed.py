"""Products of one vector with a matrix that no near cache holds.

    for a few rows of the matrix:  for each vector of columns:  add all of them to a sum

The sums stay in the L1 cache, and the matrix passes once, from its first number to its
last: a few streams that the processor sees and fetches ahead.  Summed up column by
column it passes just as often, but from page to page, and at two thirds of the speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, Vec, add, scale
from onescan.emit.body import zeros
from onescan.emit.emitter import Emitter
from onescan.emit.terms import multiply_add
from onescan.loop import Equation
from onescan.plan.plan import Plan
from onescan.primitives import record_of

TYPES = (np.dtype("float32"), np.dtype("float64"))
#: rows that are added at once
ROWS = 8


@dataclass(frozen=True)
class Stream:
    """Which operand is the matrix, whose first dimension is summed over."""

    place: int
    depth: int
    columns: int


def stream_of(plan: Plan, eqn: Equation) -> Stream | None:
    """The matrix of a product, if it is one with a vector and of this kind."""
    if plan.width < 2 or plan.vector is not None or record_of(eqn).kind != "product":
        return None
    along, (batch, _) = eqn.params["dimension_numbers"]
    sizes = [prod(v.aval.shape) for v in eqn.invars]
    place = sizes.index(max(sizes))
    matrix, vector = eqn.invars[place], eqn.invars[1 - place]
    shape, dtype = matrix.aval.shape, np.dtype(matrix.aval.dtype)
    if len(shape) != 2 or batch or tuple(along[place]) != (0,):
        return None
    values = (matrix, vector, eqn.outvars[0])
    if dtype not in TYPES or any(v.aval.dtype != dtype for v in values):
        return None
    if any(any(plan.local_lanes(v)) for v in values) or sizes[1 - place] != shape[0]:
        return None
    large = prod(shape) * dtype.itemsize >= plan.l2
    return Stream(place, *shape) if large else None


def streamed(
    e: Emitter, eqn: Equation, stream: Stream, operands: Sequence[Array]
) -> Array:
    """The product, a few rows of the matrix after the other."""
    b, target = e.b, e.fresh(eqn.outvars[0])
    matrix, vector = e.once(operands[stream.place]), e.once(operands[1 - stream.place])
    along = eqn.params["dimension_numbers"][0][1 - stream.place][0]
    column = 0 if stream.place == 0 else len(target.shape) - 1
    memory: Memory = target.memory  # type: ignore[assignment]
    e.put(target, zeros(target.dtype, target.shape))

    def number(row: Index) -> ty.Value:
        index: list[Index] = [0] * len(vector.shape)
        index[along] = row
        return vector.at(tuple(index))

    def rows(first: Index, count: int) -> None:
        here = [add(b, first, k) for k in range(count)]
        numbers = list(map(number, here))

        def visit(index: tuple[Index, ...]) -> None:
            place = index[column]
            width = place.width if isinstance(place, Vec) else 0
            total = memory.load(b, index)
            for row, x in zip(here, numbers, strict=True):
                found = matrix.at((row, place))
                total = multiply_add(
                    b, target.dtype, ty.splat(b, x, width), found, total
                )
            memory.store(b, index, total)

        e.nest(target.shape, target.lanes, visit, column, 999)

    with e.loop(stream.depth // ROWS) as block:
        rows(scale(b, block, ROWS), ROWS)
    for row in range(stream.depth - stream.depth % ROWS, stream.depth):
        rows(ir.Constant(ty.I64, row), 1)
    return target
