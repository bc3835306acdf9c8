"""A grid whose rows the blocks of a team share, and whose positions look at neighbours.

Each block has some rows in its shared memory, and room for those beside them, the halo,
which the blocks that have these rows write whenever they write their own.  Every thread
computes some positions, the results of a step together, and the blocks meet once a
step.  A cluster is launched as a whole or not at all, so all of its blocks run at the
same time, whatever else the GPU does: that is why they may wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import pieces
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, add, as_value
from onescan.emit.constants import integer
from onescan.loop import Atom
from onescan.plan.plan import Plan
from onescan.targets.base import TooLarge
from onescan.targets.nvidia.barriers import ALIGNED
from onescan.targets.nvidia.block_emitter import BlockEmitter, Visit
from onescan.targets.nvidia.block_tile import RULES, BlockTile
from onescan.targets.nvidia.flat_index import unflattened


@dataclass(frozen=True)
class Share:
    """The rows of a block: which they are, and who has those beside them."""

    axis: int  # of the grid, along which its rows lie
    size: int  # rows of the grid
    mine: int  # of them
    halo: int
    first: Any  # of the rows of this block
    above: Any = None  # how far the memory of the block before this one is from here
    below: Any = None  # and that of the block after it

    def row(self, b: ty.Builder, place: Index) -> Index:
        """Where a row of the grid, mine or one beside them, stands here.

        A choice between values may ask for any row and not use it: then it is the last.
        """
        if self.mine == self.size:
            return place
        first = b.sub(self.first, ir.Constant(ty.I64, self.halo))
        here = b.sub(as_value(b, place), first)
        size, zero = ir.Constant(ty.I64, self.size), ir.Constant(ty.I64, 0)
        before = b.icmp_signed("<", here, zero)
        here = b.select(before, b.add(here, size), here)
        behind = b.icmp_signed(">=", here, size)
        here = b.select(behind, b.sub(here, size), here)
        last = ir.Constant(ty.I64, self.mine + 2 * self.halo - 1)
        return b.select(b.icmp_unsigned(">", here, last), last, here)


@dataclass(frozen=True, eq=False)
class RowMemory(Memory):
    """Memory of some rows of a grid, and of those beside them."""

    share: Share | None = None

    def _here(self, b: ty.Builder, index: tuple[Index, ...], row: Index) -> Any:
        assert self.share is not None
        axis = self.share.axis
        return (*index[:axis], row, *index[axis + 1 :])

    def load(self, b: ty.Builder, index: tuple[Index, ...]) -> ty.Value:
        assert self.share is not None
        row = self.share.row(b, index[self.share.axis])
        return super().load(b, self._here(b, index, row))

    def store(self, b: Any, index: tuple[Index, ...], value: ty.Value) -> None:
        """Store a number of one of this block's rows, also in the halos of others."""
        share = self.share
        assert share is not None
        mine: Any = b.sub(as_value(b, index[share.axis]), share.first)
        here = self._here(b, index, add(b, mine, share.halo))
        super().store(b, here, value)
        if not share.halo:
            return
        position, _, _ = self._place(b, here)
        address: Any = b.ptrtoint(self._address(b, position), ty.I64)
        value = ty.to_memory(b, value, self.dtype)
        rows = share.mine * self.strides[share.axis] * self.dtype.itemsize
        last = ir.Constant(ty.I64, share.mine - share.halo)
        first = ir.Constant(ty.I64, share.halo)
        for is_border, far, move in (
            (b.icmp_signed("<", mine, first), share.above, rows),
            (b.icmp_signed(">=", mine, last), share.below, -rows),
        ):
            with b.if_then(is_border):
                there = b.add(b.add(address, far), ir.Constant(ty.I64, move))
                b.store_there(value, b.inttoptr(there, ty.PTR), self.dtype.itemsize)


class RowsEmitter(BlockEmitter):
    """Code of a team that shares the rows of a grid."""

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        super().__init__(plan, function)
        rows = plan.rows
        assert rows is not None
        self.grid = rows
        mine = rows.count // self.team
        self.mine = Share(rows.axis, rows.count, mine, 0, integer(0))
        if self.team > 1:
            first: Any = self.entry.mul(self.rank, ir.Constant(ty.I64, mine))
            above, below = (self._distance(step) for step in (self.team - 1, 1))
            where = first, above, below
            self.mine = Share(rows.axis, rows.count, mine, rows.halo, *where)

    def _distance(self, step: int) -> ty.Value:
        """How far the memory of the block so many places on is from this one's."""
        b = self.entry
        next_one = b.add(self.rank, ir.Constant(ty.I64, step))
        return self.distance(b, b.urem(next_one, ir.Constant(ty.I64, self.team)))

    def is_grid(self, shape: tuple[int, ...]) -> bool:
        return tuple(shape) == self.grid.shape

    def spread_shape(self, shape: tuple[int, ...], body: Visit) -> None:
        """Each block visits its own rows."""
        if not self.is_grid(shape):
            super().spread_shape(shape, body)
            return
        axis = self.mine.axis
        local = (*shape[:axis], self.mine.mine, *shape[axis + 1 :])

        def visit(flat: Index) -> None:
            index = list(unflattened(self.b, flat, local))
            index[axis] = add(self.b, index[axis], self.mine.first)
            body(tuple(index))

        self.spread(prod(local), visit, alone=True)

    def rows(self, dtype: Any, *places: int) -> Memory:
        """Some places for a value that is the grid."""
        shape = [*places, *self.grid.shape]
        shape[len(places) + self.mine.axis] = self.mine.mine + 2 * self.mine.halo
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
        pointer = self.reserve(prod(shape) * np.dtype(dtype).itemsize)
        self._shared.discard(id(pointer))  # each block stores its own rows
        dtype = np.dtype(dtype)
        return RowMemory(pointer, dtype, tuple(strides), 0, ALIGNED, share=self.mine)

    def keeps(self, body: Any, var: Atom, array: Array) -> bool:
        if any(isinstance(memory, RowMemory) for memory in array.reads):
            return var in self.grid.stored
        return super().keeps(body, var, array)

    def copied(self, array: Array) -> Array:
        """What is made of rows is put away in rows."""
        if not any(isinstance(memory, RowMemory) for memory in array.reads):
            return super().copied(array)
        if not self.is_grid(array.shape):
            raise TooLarge("a part of a grid would have to be put away")
        copy = self.stored(self.rows(array.dtype), array.shape, array.lanes)
        self.put(copy, array)
        return copy


class RowsTile(BlockTile):
    """The time loop of such a team."""

    rules: Mapping[str, Any] = MappingProxyType({**RULES, **pieces.RULES})

    def __init__(self, e: RowsEmitter) -> None:
        super().__init__(e)
        self.grid = e

    def _count(self, i: int) -> int:
        """Large xs are not loaded ahead: each thread reads its own positions."""
        if self.grid.is_grid(self.plan.local_shape(self.variables[i])):
            return 1 << 40
        return super()._count(i)

    def _pair(self, var: Atom) -> Memory | None:
        if self.grid.is_grid(self.plan.local_shape(var)):
            return self.grid.rows(var.aval.dtype, 2)
        return super()._pair(var)
