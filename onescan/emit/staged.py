"""Stacked values whose lanes lie apart, brought together a few steps at a time.

A kernel wants one number of many lanes in a vector.  Where the steps of a lane lie
side by side in a buffer instead (`plan/apart.py`), a stage on the stack holds some
steps of a tile, lanes innermost: xs are moved into it before these steps and ys out of
it after them.  So each cache line of the buffer is fetched once for all its steps,
and however far apart lanes are, only as many of them as the tile has are in use.

For one block, buffer and stage are matrices: a row for each lane there, the numbers of
its steps one after the other, and a column for each lane here.  Squares are transposed
in registers, as bits; a rest that fills no square is moved number by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Index, Memory, add, scale
from onescan.emit.emitter import Emitter
from onescan.emit.shuffles import transposed_square
from onescan.loop import Atom
from onescan.plan.patience import operations_in

#: steps of a stage: those of one number of four bytes are a cache line
STEPS = 16
#: numbers along a side of a square
SIDE = 16


@dataclass(frozen=True)
class Chunk:
    """The steps that stages hold: `count` of them from `begin`, at times from `low`."""

    begin: ty.Value
    count: ty.Value
    low: ty.Value


@contextmanager
def chunks(e: Emitter, length: int, reverse: bool) -> Iterator[Chunk]:
    """Code for every chunk of a loop's steps; the last may be a short one."""
    each = STEPS * operations_in(e.plan, e.plan.loop.body.jaxpr)
    with e.patient_loop(-(-length // STEPS), each) as number:
        b, most = e.b, ir.Constant(ty.I64, STEPS)
        begin = b.mul(number, most)
        left = b.sub(ir.Constant(ty.I64, length), begin)
        count = b.select(b.icmp_signed("<", left, most), left, most)
        yield Chunk(begin, count, b.sub(left, count) if reverse else begin)


class Stage:
    """Some steps of a tile, of one stacked value: (blocks, steps, a block's shape).

    Of complex numbers both parts, in one more dimension.
    """

    def __init__(self, e: Emitter, var: Atom, parts: int = 1) -> None:
        vector = e.plan.vector
        assert vector is not None
        self.e, self.lanes = e, e.plan.local_lanes(var)
        shape = e.plan.local_shape(var)
        self.width = vector.extent
        self.numbers = parts * prod(shape) // self.width  # of a lane in a step
        self.parts = parts
        each = (parts,) if parts > 1 else ()
        whole = (vector.blocks, STEPS, *shape, *each)
        lanes = (None, None, *self.lanes, *(None for _ in each))
        self.memory = e.scratch(whole, lanes, var.aval.dtype)

    def at(self, block: Index, chunk: Chunk, time: ty.Value, part: int = 0) -> Memory:
        """What it holds of a block, or of one part of its numbers, at one time."""
        b = self.e.b
        here = self.memory.within(b, block).within(b, b.sub(time, chunk.low))
        if self.parts == 1:
            return here
        *strides, apart = here.strides
        offset: Any = add(b, here.offset, part * apart)
        return replace(here, strides=tuple(strides), offset=offset)

    def bring(self, block: Index, chunk: Chunk, buffer: Memory) -> None:
        """Move the steps of a block here from its buffer."""
        self._move(block, chunk, buffer, inwards=True)

    def take(self, block: Index, chunk: Chunk, buffer: Memory) -> None:
        """Move them from here to the buffer."""
        self._move(block, chunk, buffer, inwards=False)

    def _move(self, block: Index, chunk: Chunk, buffer: Memory, inwards: bool) -> None:
        e, b, width = self.e, self.e.b, self.width
        apart = next(
            stride
            for lane, stride in zip(self.lanes, buffer.strides[1:], strict=True)
            if lane is e.plan.vector
        )
        there = _Matrix(buffer.within(b, chunk.low), rows=apart, columns=1)
        here = _Matrix(self.memory.within(b, block), rows=1, columns=width)
        source, target = (there, here) if inwards else (here, there)
        side = min(SIDE, width)
        total = b.mul(chunk.count, ir.Constant(ty.I64, self.numbers))
        squares = b.udiv(total, ir.Constant(ty.I64, side))
        done = b.mul(squares, ir.Constant(ty.I64, side))
        rest = b.sub(total, done)
        zero = ir.Constant(ty.I64, 0)

        with (
            b.if_then(b.icmp_signed(">", squares, zero)),
            e.loop(width // side) as across,
            e.loop(squares, about=self.numbers * STEPS / side) as along,
        ):
            place = scale(b, across, side), scale(b, along, side)
            square = source.square(b, place, side, whole_rows=inwards)
            target.put_square(b, place, square, whole_rows=not inwards)
        with (
            b.if_then(b.icmp_signed(">", rest, zero)),
            e.loop(width) as lane,
            e.loop(rest) as k,
        ):
            place = lane, b.add(done, k)
            target.put(b, place, source.get(b, place))


Place = tuple[Index, Index]


@dataclass(frozen=True)
class _Matrix:
    """Numbers of a block as bits: by lane, and by position in the steps of a lane."""

    memory: Memory
    rows: int  # from one lane to the next
    columns: int  # from one position to the next

    @property
    def _kind(self) -> Any:
        return ty.memory_type(self.memory.dtype)

    def _address(self, b: ty.Builder, place: Place) -> ty.Value:
        lane, position = place
        start = add(b, scale(b, lane, self.rows), scale(b, position, self.columns))
        return self.memory.address(b, start)

    def get(self, b: ty.Builder, place: Place) -> ty.Value:
        size = self.memory.dtype.itemsize
        return b.load(self._address(b, place), typ=self._kind, align=size)

    def put(self, b: ty.Builder, place: Place, value: ty.Value) -> None:
        b.store(value, self._address(b, place), align=self.memory.dtype.itemsize)

    def _vectors(
        self, b: ty.Builder, place: Place, side: int, whole_rows: bool
    ) -> list[ty.Value]:
        """Where the rows or columns of a square begin, whichever lie side by side."""
        lane, position = place
        if whole_rows:
            return [self._address(b, (add(b, lane, k), position)) for k in range(side)]
        return [self._address(b, (lane, add(b, position, k))) for k in range(side)]

    def square(
        self, b: ty.Builder, place: Place, side: int, whole_rows: bool
    ) -> list[ty.Value]:
        """Load a square and turn it: rows become columns, columns rows."""
        kind, size = ir.VectorType(self._kind, side), self.memory.dtype.itemsize
        vectors = [
            b.load(address, typ=kind, align=size)
            for address in self._vectors(b, place, side, whole_rows)
        ]
        return transposed_square(b, vectors)

    def put_square(
        self, b: ty.Builder, place: Place, vectors: list[ty.Value], whole_rows: bool
    ) -> None:
        addresses = self._vectors(b, place, len(vectors), whole_rows)
        for address, vector in zip(addresses, vectors, strict=True):
            b.store(vector, address, align=self.memory.dtype.itemsize)
