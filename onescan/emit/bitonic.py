"""A bitonic sort in memory, whose code does not grow with what is sorted.

Rows that are sorted together (keys, what goes with them, positions that break ties)
are filled up to a power of two with what sorts last.  Then runs of 2, 4, 8, ...
elements are merged, every second one the other way round: each merge exchanges
elements 2^t apart, for t from large to small.  All exchanges of a pass are
independent, so they are done in lanes, in vectors or by threads.  Where vectors lie
along what is sorted, exchanges of near elements happen inside registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Index, Memory, Vec, add, as_value, scale
from onescan.emit.emitter import Emitter
from onescan.plan.plan import is_across

Row = list[ty.Value]
#: whether the first of two comes before the second
Before = Callable[[Row, Row], ty.Value]


@dataclass(frozen=True)
class Column:
    """One of the values that are sorted together: elements, and what sorts last."""

    dtype: np.dtype
    at: Callable[[tuple[Index, ...]], ty.Value]  # by batch, and position at the end
    last: Any


def without(values: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """What belongs to all dimensions but one."""
    return (*values[:axis], *values[axis + 1 :])


class Bitonic:
    """Columns of `n` elements for each place of a batch, and how to sort them."""

    def __init__(
        self,
        e: Emitter,
        batch: tuple[int, ...],
        lanes: tuple[Any, ...],
        n: int,
        columns: list[Column],
        before: Before,
    ) -> None:
        self.e, self.batch, self.lanes, self.before = e, batch, lanes, before
        self.stages = max(n - 1, 1).bit_length()
        self.n, self.size = n, 1 << self.stages
        self.rows: list[Memory] = [
            e.scratch((*batch, self.size), (*lanes, None), c.dtype) for c in columns
        ]
        self._fill(columns)
        self.width = 1
        if not is_across(lanes) and e.plan.inner_width > 1:
            self.width = min(e.plan.inner_width, self.size // 2)
        if self.width > 1:
            self._in_vectors()
        else:
            with e.loop(self.stages) as stage:
                self._merge(add(e.b, stage, 1), 0)

    def _visit(self, count: int, body: Callable[[tuple[Index, ...], Index], None]):
        """Run `body` for every place of the batch and every number below `count`."""
        self.e.nest(
            (*self.batch, count),
            (*self.lanes, None),
            lambda index: body(index[:-1], index[-1]),
            None,
            self.e.unrolled_operations,
        )

    def _fill(self, columns: list[Column]) -> None:
        e = self.e

        def put(batch: tuple[Index, ...], k: Index) -> None:
            for row, column in zip(self.rows, columns, strict=True):
                row.store(e.b, (*batch, k), column.at((*batch, k)))

        def pad(batch: tuple[Index, ...], k: Index) -> None:
            place = (*batch, add(e.b, k, self.n))
            for row, column in zip(self.rows, columns, strict=True):
                row.store(e.b, place, ty.literal(column.last, column.dtype))

        self._visit(self.n, put)
        if self.size > self.n:
            self._visit(self.size - self.n, pad)

    def _merge(self, stage: Index, nearest: int) -> None:
        """Merge runs of 2^stage elements, by exchanges at least 2^nearest apart."""
        e, one = self.e, ty.constant(ty.I64, 1)
        rounds = add(e.b, stage, -nearest)
        with e.loop(as_value(e.b, rounds), about=self.stages / 2) as k:
            far = e.b.sub(as_value(e.b, add(e.b, stage, -1)), k)
            apart = e.b.shl(one, far)

            def exchange(batch: tuple[Index, ...], number: Index) -> None:
                p = as_value(e.b, scale(e.b, number, self.width))
                whole = e.b.shl(e.b.lshr(p, far), e.b.add(far, one))
                inside = e.b.and_(p, e.b.sub(apart, one))
                low = e.b.or_(whole, inside)
                self._exchange(batch, low, e.b.add(low, apart), self._down(low, stage))

            self._visit(self.size // 2 // self.width, exchange)

    def _down(self, place: Any, stage: Index) -> ty.Value:
        """Whether the run of 2^stage elements around a place is sorted backwards."""
        b = self.e.b
        return b.trunc(b.lshr(as_value(b, place), as_value(b, stage)), ty.I1)

    def _exchange(
        self, batch: tuple[Index, ...], low: Any, high: Any, down: ty.Value
    ) -> None:
        b = self.e.b
        here, there = (
            (*batch, Vec(i, self.width) if self.width > 1 else i) for i in (low, high)
        )
        x, y = ([row.load(b, at) for row in self.rows] for at in (here, there))
        swap = b.xor(*ty.match(b, self.before(y, x), down))
        for row, a, c in zip(self.rows, x, y, strict=True):
            row.store(b, here, b.select(*ty.match(b, swap, c, a)))
            row.store(b, there, b.select(*ty.match(b, swap, a, c)))

    # in registers

    def _in_vectors(self) -> None:
        e, near = self.e, self.width.bit_length() - 1

        def sort_one(batch: tuple[Index, ...], block: Index) -> None:
            self._inside(batch, block, range(1, near + 1), near)

        self._visit(self.size // self.width, sort_one)
        if self.stages == near:
            return
        with e.loop(self.stages - near) as k:
            stage = e.b.add(k, ty.constant(ty.I64, near + 1))
            self._merge(stage, near)

            def finish(batch: tuple[Index, ...], block: Index) -> None:
                self._inside(batch, block, [near + 1], stage)

            self._visit(self.size // self.width, finish)

    def _inside(
        self, batch: tuple[Index, ...], block: Index, stages: Any, last: Index
    ) -> None:
        """Merge the elements of a vector; which way in the end, stage `last` says."""
        b, width, near = self.e.b, self.width, self.width.bit_length() - 1
        start = scale(b, block, width)
        at = (*batch, Vec(start, width))  # type: ignore[arg-type]
        values = [row.load(b, at) for row in self.rows]
        backwards = ty.splat(b, self._down(start, last), width)
        for stage in stages:
            for far in reversed(range(min(stage, near))):
                places = [i ^ (1 << far) for i in range(width)]
                kind = ir.VectorType(ty.I32, width)
                order = ir.Constant(kind, places)
                others = [b.shuffle_vector(v, v, order) for v in values]
                upper = [bool(i >> far & 1) for i in range(width)]
                down = [stage < near and bool(i >> stage & 1) for i in range(width)]
                flip = [u != d for u, d in zip(upper, down, strict=True)]
                flips = ir.Constant(ir.VectorType(ty.I1, width), list(map(int, flip)))
                if stage >= near:
                    flips = b.xor(flips, backwards)
                take = b.xor(self.before(others, values), flips)
                values = [
                    b.select(take, other, value)
                    for other, value in zip(others, values, strict=True)
                ]
        for row, value in zip(self.rows, values, strict=True):
            row.store(b, at, value)
