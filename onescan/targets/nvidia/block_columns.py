"""Columns of matrices, in the registers of the threads of a block.

Neighbours of a warp share a column, row by row in turns: what they find out about it is
joined by exchanges between them, with no barrier.  Where there are more columns than
such groups, each group has several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Index, add, as_value
from onescan.emit.comparisons import maximum
from onescan.emit.convert import like
from onescan.emit.linalg.jacobi import plus_product
from onescan.emit.reduce import KINDS
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_reductions import joined, sharing
from onescan.targets.nvidia.flat_index import unflattened

#: sums that a thread has under way at a time
CHAINS = 4

Sum = KINDS["reduce_sum"][0]


@dataclass(frozen=True)
class Groups:
    """How the threads of a block divide `count` columns of so many rows."""

    e: BlockEmitter
    count: int
    rows: int

    @property
    def parts(self) -> int:
        """Neighbours that share a column."""
        return sharing(self.e, self.count, self.rows)

    @property
    def each(self) -> int:
        """Rows of a column that a thread has."""
        return -(-self.rows // self.parts)

    @property
    def padded(self) -> int:
        """Rows that all threads of a group have together."""
        return self.each * self.parts

    @property
    def rounds(self) -> int:
        """Columns of a group."""
        return -(-self.count // (self.e.block // self.parts))

    @property
    def part(self) -> ty.Value:
        """The number of a thread in its group, which is that of its first row."""
        return self.e.b.and_(self.e.here, ir.Constant(ty.I64, self.parts - 1))

    def row(self, number: int) -> ty.Value:
        """The row that is one of a thread's own, by its number."""
        return as_value(self.e.b, add(self.e.b, self.part, number * self.parts))

    def column(self, number: int) -> tuple[ty.Value, ty.Value]:
        """One of a group's columns, by its number, and whether there is such a one.

        Groups that have none do the last one again, to take part in exchanges.
        """
        b, bits = self.e.b, self.parts.bit_length() - 1
        group = b.lshr(self.e.here, ir.Constant(ty.I64, bits))
        groups = self.e.block // self.parts
        flat = as_value(b, add(b, group, number * groups))
        if (number + 1) * groups <= self.count:
            return flat, ty.constant(ty.I1, 1)
        is_one = self.e.below(flat, self.count)
        return b.select(is_one, flat, ir.Constant(ty.I64, self.count - 1)), is_one

    def total(self, terms: list[ty.Value], dtype: Any) -> ty.Value:
        """The sum of all terms of a group, the same in all of its threads."""
        while len(terms) > 1:
            half = -(-len(terms) // 2)
            pairs = zip(terms[:half], terms[half:], strict=False)
            sums = [self.e.b.fadd(x, y) for x, y in pairs]
            terms = [*sums, *terms[len(sums) : half]]
        return joined(self.e, terms[0], Sum, dtype, self.parts)

    def dot(self, pairs: list[tuple[ty.Value, ty.Value]], dtype: Any) -> ty.Value:
        """The sum of all products of a group."""
        totals = [like(pairs[0][0], 0)] * min(CHAINS, len(pairs))
        for k, (x, y) in enumerate(pairs):
            here = k % CHAINS
            totals[here] = plus_product(self.e.b, totals[here], x, y)
        return self.total(totals, dtype)

    def largest(self, sizes: list[ty.Value], dtype: Any) -> ty.Value:
        """The largest number of a group, or NaN where one is."""
        largest = sizes[0]
        for size in sizes[1:]:
            largest = maximum(self.e.b, dtype, largest, size)
        return joined(self.e, largest, maximum, dtype, self.parts)


@dataclass(frozen=True)
class Column:
    """A column in the registers of a group, in code that the group is running."""

    groups: Groups
    batch: tuple[Index, ...]
    j: ty.Value
    is_one: ty.Value  # not another one, done again
    cells: list[ty.Value]

    @property
    def rows(self) -> list[ty.Value]:
        """Of this thread; the last of them may be none of the matrix."""
        return [self.groups.row(k) for k in range(len(self.cells))]

    def get(self) -> list[ty.Value]:
        return [self.groups.e.b.load(cell) for cell in self.cells]

    def set(self, values: list[ty.Value]) -> None:
        for value, cell in zip(values, self.cells, strict=True):
            self.groups.e.b.store(value, cell)


class Columns:
    """The columns of some matrices."""

    def __init__(
        self, e: BlockEmitter, dtype: Any, shape: tuple[int, ...], rows: int
    ) -> None:
        """`shape` is that of the batch, and the number of columns."""
        self.e, self.dtype, self.shape = e, dtype, shape
        self.groups = Groups(e, prod(shape), rows)
        kind = ty.register_type(dtype)
        self.cells = [
            [e.entry.alloca(kind) for _ in range(self.groups.each)]
            for _ in range(self.groups.rounds)
        ]

    def each(self) -> Iterator[Column]:
        """Code for each column of a group."""
        for number, cells in enumerate(self.cells):
            flat, is_one = self.groups.column(number)
            *batch, j = unflattened(self.e.b, flat, self.shape)
            j = as_value(self.e.b, j)
            yield Column(self.groups, tuple(batch), j, is_one, cells)

    def load(self, at: Callable[[tuple[Index, ...], Index, Index], ty.Value]) -> None:
        """Fill the columns; rows that are none of a matrix are zero."""
        e, rows = self.e, self.groups.rows
        for column in self.each():
            for number, (i, cell) in enumerate(
                zip(column.rows, column.cells, strict=True)
            ):
                if (number + 1) * self.groups.parts <= rows:
                    e.b.store(at(column.batch, i, column.j), cell)
                    continue
                e.b.store(ty.constant(ty.register_type(self.dtype), 0), cell)
                with e.b.if_then(e.below(i, rows)):
                    e.b.store(at(column.batch, i, column.j), cell)

    def store(
        self,
        rows: int,
        put: Callable[[tuple[Index, ...], Index, Index, ty.Value], None],
    ) -> None:
        """Put the first rows of the columns away."""
        e = self.e
        for column in self.each():
            with e.b.if_then(column.is_one):
                for i, value in zip(column.rows, column.get(), strict=True):
                    with e.b.if_then(e.below(i, rows)):
                        put(column.batch, i, column.j, value)
