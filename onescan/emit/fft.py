"""onescan_fft: Fourier transforms along one axis, of lengths that are powers of two.

They go by Stockham's method (`stockham`), in vectors along another axis.  Where the
axis itself is the one for vectors, it changes places with another one.  If it is alone,
it is taken as a matrix: its columns are transformed, turned by the angles in between,
and then its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Memory, Vec, add, scale
from onescan.emit.emitter import Emitter
from onescan.emit.routines import is_written, routine
from onescan.emit.shuffles import transposed_square
from onescan.emit.stockham import (
    COST,
    Memories,
    Pair,
    Place,
    Source,
    Stages,
    put,
    scratch,
    source_of,
    standing,
)
from onescan.plan.plan import is_across

#: points from which vectors may lie along the axis itself
FEWEST = 16
#: points up to which a transform has few loops or none, and is no routine
SHORT = 16

#: writes a transform: the stage that is next, what it reads, and memory
Write = Callable[[int, Source, Sequence[Memories]], None]


def fft(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    re, im = (e.once(x) for x in operands)
    targets = [e.fresh(v) for v in eqn.outvars]
    if 0 in re.shape:
        return targets
    axis, n = eqn.params["axis"], re.shape[eqn.params["axis"]]
    made: list[Any] = [t.memory for t in targets]
    shape, lanes, source = targets[0].shape, targets[0].lanes, source_of(e, re, im)
    laned = is_across(lanes)
    width = min(n, e.plan.inner_width)
    last = axis == len(shape) - 1 and width > 1 and not laned
    if last and len(shape) > 1 and width >= 4 and shape[-2] % width == 0:
        _Walk(e, shape, lanes, re.dtype).exchanged(source, made, width)
    elif last and n >= FEWEST:
        _Walk(e, shape, lanes, re.dtype).as_matrix(source, made)
    else:
        _plainly(Stages(e, shape, lanes, axis, re.dtype), source, made)
    return targets


def _plainly(stages: Stages, source: Source, target: Memories) -> None:
    other: Memories = []
    if len(stages.radices) > 1:
        other = scratch(stages.e, stages.shape, stages.lanes, stages.dtype, "other")

    def write(start: int, source: Source, memories: Sequence[Memories]) -> None:
        stages.run(source, *memories, start=start)

    _called(stages, stages.n, source, [target, other], write)


def _called(
    stages: Stages,
    n: int,
    source: Source,
    memories: Sequence[Memories],
    write: Write,
) -> None:
    """A transform of n points that begins with stages, which use the first memories.

    It is a routine, but for a first stage that computes what it reads, and one whose
    rest is a routine already.
    """
    e, given, start = stages.e, source.memories, 0
    if n <= SHORT:
        write(0, source, memories)
        return
    each = [*chain(*memories)]
    key = "fft", n, stages.shape, stages.lanes, stages.axis
    if given is None or is_written(e, (1, key), each):
        given, start = [], 1
        stages.stage(0, source, stages.end(0, *memories[:2]))

    def inside(given: Sequence[Memory]) -> None:
        pairs = [given[k : k + 2] for k in range(0, len(given), 2)]
        read = stages.end(0, *pairs[:2]) if start else pairs.pop()
        write(start, standing(e, read), pairs)

    routine(e, (start, key), [*each, *given], inside)


class _Walk:
    """Transforms along the last axis, by vectors along another one."""

    def __init__(
        self, e: Emitter, shape: tuple[int, ...], lanes: tuple[Any, ...], dtype: Any
    ) -> None:
        self.e, self.shape, self.lanes, self.dtype = e, shape, lanes, dtype

    def exchanged(self, source: Source, target: Memories, width: int) -> None:
        """The last two axes change places, and back."""
        e, (*front, m, n) = self.e, self.shape
        lanes = (*self.lanes[:-2], self.lanes[-1], self.lanes[-2])
        shape, axis = (*front, n, m), len(front)
        names = "given", "made"
        given, made = (scratch(e, shape, lanes, self.dtype, name) for name in names)
        _turn(e, source, given, self.shape, self.lanes, width)
        stages = Stages(e, shape, lanes, axis, self.dtype)
        _plainly(stages, standing(e, given), made)
        _turn(e, standing(e, made), target, shape, lanes, width)

    def as_matrix(self, source: Source, target: Memories) -> None:
        """The last axis as a matrix of about as many rows as columns."""
        e, (*front, n) = self.e, self.shape
        rows = 1 << ((n.bit_length() - 1) // 2)
        columns = n // rows
        width, axis = min(rows, e.plan.inner_width), len(front)
        lanes, shape = (*self.lanes[:-1], None, None), (*front, rows, columns)
        down = Stages(e, shape, lanes, axis, self.dtype, turned=True)
        along = Stages(e, (*front, columns, rows), lanes, axis, self.dtype)
        memories = [
            [_folded(memory, columns) for memory in pair]
            for k in range(2)
            for pair in [scratch(e, self.shape, self.lanes, self.dtype, k)]
        ]

        def write(start: int, source: Source, memories: Sequence[Memories]) -> None:
            made, other, target = memories
            down.run(source, made, other, start)
            made, other = ([_refolded(m, rows) for m in pair] for pair in memories[:2])
            _turn_squares(e, standing(e, memories[0]), other, shape, lanes, width)
            along.run(standing(e, other), target, made)

        result = [_folded(memory, rows) for memory in target]
        _called(down, n, _matrix(e, source, columns), [*memories, result], write)


def _matrix(e: Emitter, source: Source, columns: int) -> Source:
    """The last axis of a source as a matrix of so many columns."""

    def at(place: Place) -> Pair:
        *first, i, j = place
        return source.at((*first, add(e.b, scale(e.b, i, columns), j)))

    folded = source.memories and [_folded(m, columns) for m in source.memories]
    return Source(at, folded)


def _folded(memory: Memory, columns: int) -> Memory:
    """The same memory, with its last axis as a matrix of so many columns."""
    *front, stride = memory.strides
    return replace(memory, strides=(*front, stride * columns, stride))


def _refolded(memory: Memory, columns: int) -> Memory:
    """A matrix in memory, with so many columns instead."""
    *front, _, stride = memory.strides
    return replace(memory, strides=(*front, stride * columns, stride))


def _turn(
    e: Emitter,
    source: Source,
    target: Memories,
    shape: tuple[int, ...],
    lanes: tuple[Any, ...],
    width: int,
) -> None:
    """Let the last two axes change places, square by square."""
    if source.memories is None or prod(shape[-2:]) <= SHORT:
        _turn_squares(e, source, target, shape, lanes, width)
        return

    def write(memories: Sequence[Memory]) -> None:
        given, made = standing(e, memories[:2]), memories[2:]
        _turn_squares(e, given, made, shape, lanes, width)

    routine(e, ("turn", shape, lanes, width), [*source.memories, *target], write)


def _turn_squares(
    e: Emitter,
    source: Source,
    target: Memories,
    shape: tuple[int, ...],
    lanes: tuple[Any, ...],
    width: int,
) -> None:
    *front, rows, columns = shape
    none, line = (0,) * len(front), Vec(0, width)

    def visit(square: Place) -> None:
        *first, i, j = square
        row, column = (scale(e.b, k, width) for k in (i, j))
        read = source.beginning(e, (*first, row, Vec(column, width)))
        lines = [
            [ty.splat(e.b, part, width) for part in read((*none, k, line))]
            for k in range(width)
        ]
        parts = (transposed_square(e.b, [line[k] for line in lines]) for k in (0, 1))
        ends = [memory.moved(e.b, (*first, column, row)) for memory in target]
        for k, pair in enumerate(zip(*parts, strict=True)):
            put(e, ends, (*none, k, line), pair)

    squares = (*front, rows // width, columns // width)
    e.nest(squares, lanes, visit, None, COST * width)


RULES = {"onescan_fft": fft}
