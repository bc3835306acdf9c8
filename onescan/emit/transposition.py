"""Matrices transposed in a kernel, square by square, by shuffles.

A transposition is a view elsewhere: what reads it element by element reads numbers that
are far from each other, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from onescan.emit.arrays import Array, Index, Memory, Vec, add, scale
from onescan.emit.emitter import Emitter
from onescan.emit.loops import Stretch
from onescan.emit.shuffles import transposed_square
from onescan.emit.structural import transpose
from onescan.loop import Equation
from onescan.plan.plan import is_across
from onescan.primitives import record_of

#: bytes of the numbers that are exchanged in squares
SIZES = (4, 8)


def transpose_in_squares(
    e: Emitter, eqn: Equation, operands: list[Array]
) -> list[Array]:
    """A view of a copy that is transposed, where vectors would read it one by one."""
    [x] = operands
    across = eqn.params["permutation"][-1]
    if _is_read_by_elements(e, eqn, x, across):
        x = transposed(e, x, len(x.shape) - 1, across, not _is_reshaped(e, eqn))
    return transpose(e, eqn, [x])


def _is_reshaped(e: Emitter, eqn: Equation) -> bool:
    """Whether its lines are read as one after the other."""
    [out] = eqn.outvars
    readers = (other for other in e.body.jaxpr.eqns if out in other.invars)
    return any(other.primitive.name == "reshape" for other in readers)


def _is_read_by_elements(e: Emitter, eqn: Equation, x: Array, across: int) -> bool:
    """Whether others than products read it, which find their order themselves."""
    width, last = e.plan.inner_width, len(x.shape) - 1
    if width < 2 or across == last or x.dtype.itemsize not in SIZES:
        return False
    if is_across(x.lanes) or e.body is None:
        return False
    if x.stride(last) != 1 or min(x.shape[across], x.shape[last]) < width:
        return False
    if e.body.in_part.get(eqn.outvars[0]) is not None:
        return False
    products = {
        id(other) for other in e.body.jaxpr.eqns if record_of(other).kind == "product"
    }
    return not e.body.sinks(eqn.outvars[0]) <= products


def transposed(
    e: Emitter, array: Array, along: int, across: int, padded: bool = True
) -> Array:
    """The same array in memory of its own, with other numbers side by side.

    They are `across` where those `along` another dimension were.  Matrices are turned
    square by square, the rest by smaller squares, into lines that may be whole vectors.
    """
    shape = array.shape
    batch = [i for i in range(len(shape)) if i not in (along, across)]
    order = [*batch, along, across]
    width = e.plan.inner_width if padded else 1
    line = -(-shape[across] // width) * width
    sides = *(shape[i] for i in batch), shape[along], line
    memory = e.scratch(sides, (None,) * len(order), array.dtype)
    strides = dict(zip(order, memory.strides, strict=True))
    memory = replace(memory, strides=tuple(strides[i] for i in range(len(order))))
    sizes = [shape[i] for i in batch]

    def at(matrix: tuple[Index, ...], column: Index, row: Index) -> tuple[Index, ...]:
        places = {**dict(zip(batch, matrix, strict=True)), along: column, across: row}
        return tuple(places[i] for i in range(len(shape)))

    down, right = e.stretches(shape[across]), e.stretches(shape[along])
    for rows, columns in product(down, right):
        _turned(e, array, memory, sizes, at, rows, columns)
    return e.stored(memory, shape, array.lanes)


def _turned(
    e: Emitter,
    array: Array,
    memory: Memory,
    matrices: list[int],
    at: Callable[..., tuple[Index, ...]],
    down: Stretch,
    right: Stretch,
) -> None:
    """Some rows of some columns, in squares as large as both are wide."""
    side = min(down.width, right.width)

    def turn(index: tuple[Index, ...]) -> None:
        *matrix, i, j = index
        row = add(e.b, scale(e.b, i, side), down.first)
        column = add(e.b, scale(e.b, j, side), right.first)
        if side == 1:
            place = at(matrix, column, row)
            memory.store(e.b, place, array.at(place))
            return
        lines = [
            array.at(at(matrix, Vec(column, side), add(e.b, row, k)))
            for k in range(side)
        ]
        for k, line in enumerate(transposed_square(e.b, lines)):
            place = at(matrix, add(e.b, column, k), Vec(row, side))
            memory.store(e.b, place, line)

    counts = [part.vectors * part.width // side for part in (down, right)]
    e.for_each([*matrices, *counts], turn, 999)
