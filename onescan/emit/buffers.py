"""The buffers of a kernel: what a tile reads and writes of each, in one step or at all.

Operands come first, then results; one that is stacked has its steps one after the
other, in one array or, first some and then the rest, in two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, add, scale
from onescan.emit.body import counted, zeros
from onescan.emit.emitter import Emitter
from onescan.emit.staged import Stage
from onescan.plan.batch_major import is_staged
from onescan.plan.plan import is_across


class Buffers:
    """The buffers of a loop, seen from one tile."""

    block: Index = 0  # the block being emitted

    def __init__(self, e: Emitter) -> None:
        self.e, self.plan = e, e.plan
        loop, jaxpr = e.plan.loop, e.plan.loop.body.jaxpr
        self.loop = loop
        given, made = e.plan.buffers
        count = len(given) + len(e.plan.tails) + len(made)
        buffers, self.number = e.function.args[:count], e.function.args[count]
        self.num_in = len(jaxpr.invars)
        rest = iter(buffers)
        #: by the variables that have them, or share them with the one before
        self.pointers = {i: next(rest) for i in given}
        self.tails = {i: next(rest) for i in e.plan.tails}
        self.pointers.update((i, next(rest)) for i in made)
        self.fixed = loop.num_consts + loop.num_carry
        self.carries: list[Any] = jaxpr.invars[loop.num_consts : self.fixed]
        # the variable that says how each buffer lies along the lanes
        ys = jaxpr.outvars[loop.num_carry :]
        self.variables = [*jaxpr.invars, *self.carries, *ys]
        self.first_y = self.num_in + loop.num_carry
        self.stages = {
            i: Stage(e, self.variables[i], self._parts(i))
            for i in e.plan.batch_major
            if i in self.pointers and is_staged(e.plan, self.variables[i])
        }
        self.chunk: Any = None  # the steps that the stages hold

    def _first(self, i: int) -> int:
        """The variable that has the buffer of variable i."""
        return i if i in self.pointers else i - 1

    def _parts(self, i: int) -> int:
        """How many variables the buffer of variable i is made of."""
        return 2 if self._first(i) in self.plan.joined else 1

    def _memory(self, i: int) -> Memory:
        """Buffer i, seen from the current bases."""
        e, var = self.e, self.variables[i]
        shape, lanes = tuple(var.aval.shape), self.plan.local_lanes(var)
        if self._is_stacked(i):
            steps = self.plan.wholes.get(i, self.loop.length)
            shape, lanes = (steps, *shape), (None, *lanes)
        rank = len(var.aval.shape)
        first, parts = self._first(i), self._parts(i)
        strides, size = [0] * len(shape), parts
        for d in reversed(self.plan.layouts[i]):
            strides[d] = size
            size *= shape[d]
        offset: Index = 0
        if first in self.plan.starts and first not in self.tails:
            offset = self.plan.starts[first] * strides[0]
        group = 1
        for lane, stride in zip(lanes, strides, strict=True):
            if lane is not None:
                offset = add(e.b, offset, scale(e.b, e.bases[lane], stride))
                group = stride if lane.vector else group
        laned = is_across(lanes)
        if rank and not laned and self.plan.inner_width > 1:
            along = self.plan.minor(self.plan.local_shape(var)) - rank
            group = strides[along] if strides[along] <= self.plan.across else 1
            cut = [s for lane, s in zip(lanes, strides, strict=True) if lane]
            group = 1 if any(stride < group for stride in cut) else group
        if self._is_stacked(i) and strides[0] < group:  # staged.py moves these
            group = 1
        # a group is whole: what lies beside a lane is not cut into tiles
        beside = [l for l, s in zip(lanes, strides, strict=True) if s < group]
        assert 0 in shape or not any(beside), "numbers of a lane in several tiles"
        return Memory(
            self.pointers[first],
            np.dtype(var.aval.dtype),
            tuple(strides),
            offset,  # type: ignore[arg-type]
            group=group,
            fixed=self.e.has_read_only_loads and i < self.num_in,
            steady=i < self.loop.num_consts,
            parts=parts,
            part=i - first,
        )

    def _is_stacked(self, i: int) -> bool:
        return self.fixed <= i < self.num_in or i >= self.first_y

    def _whole(self, i: int) -> Array:
        var = self.variables[i]
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        return self.e.stored(self._memory(i), shape, lanes)

    def _slice(self, i: int, t: ty.Value) -> Array:
        """The part of a stacked buffer that belongs to step t."""
        var, b, first = self.variables[i], self.e.b, self._first(i)
        if i in self.plan.counters:
            return counted(b, t, var.aval.dtype)
        if i in self.plan.zeros:
            return zeros(var.aval.dtype, self.plan.local_shape(var))
        if first in self.stages:
            here = self.stages[first].at(self.block, self.chunk, t, i - first)
        elif first in self.tails:
            here = self._in_two(i, t)
        else:
            here = self._memory(i).within(b, t)
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        return self.e.stored(here, shape, lanes)

    def _in_two(self, i: int, t: ty.Value) -> Memory:
        """The same where the first steps stand in one array and the rest in another."""
        b, whole = self.e.b, self._first(i)
        tail = self.plan.tails[whole]
        first = b.icmp_signed("<", t, ir.Constant(ty.I64, tail.after))
        later = b.add(t, ir.Constant(ty.I64, tail.start - tail.after))
        start = b.add(t, ir.Constant(ty.I64, self.plan.starts.get(whole, 0)))
        pointer = b.select(first, self.pointers[whole], self.tails[whole])
        memory = replace(self._memory(i), pointer=pointer)
        return memory.within(b, b.select(first, start, later))
