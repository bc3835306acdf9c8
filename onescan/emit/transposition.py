"""Matrices transposed in a kernel, square by square, by shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Vec, add, scale
from onescan.emit.emitter import Emitter


def transposed(e: Emitter, matrix: Array) -> Array:
    """The same matrix in memory of its own, column by column.

    Its sizes are multiples of a vector's width, and it is turned square by square.
    """
    width, (rows, columns) = e.plan.inner_width, matrix.shape
    memory = e.scratch((columns, rows), (None, None), matrix.dtype)
    memory = replace(memory, strides=(1, rows))

    def turn(square: tuple[Index, ...]) -> None:
        row, column = (scale(e.b, i, width) for i in square)
        lines = [
            matrix.at((add(e.b, row, k), Vec(column, width))) for k in range(width)
        ]
        for k, line in enumerate(transposed_square(e.b, lines)):
            memory.store(e.b, (Vec(row, width), add(e.b, column, k)), line)

    e.for_each([rows // width, columns // width], turn, 999)
    return e.stored(memory, matrix.shape, matrix.lanes)


def transposed_square(b: ty.Builder, lines: Sequence[ty.Value]) -> list[ty.Value]:
    """The columns of as many vectors as each of them has numbers."""
    lines, side, step = list(lines), len(lines), 1
    while step < side:
        # squares of `step` numbers that face each other across the diagonal change
        lower = [i if not i & step else side + i - step for i in range(side)]
        upper = [i + step if not i & step else side + i for i in range(side)]
        kind = ir.VectorType(ty.I32, side)
        lower, upper = ir.Constant(kind, lower), ir.Constant(kind, upper)
        for k in range(side):
            if not k & step:
                x, y = lines[k], lines[k + step]
                lines[k] = b.shuffle_vector(x, y, lower)
                lines[k + step] = b.shuffle_vector(x, y, upper)
        step *= 2
    return lines
