"""A tile of lanes: the time loop, and what goes in and out.

    for each tile of lanes:
        carry = init
        for each step:
            carry, ys[t] = body(consts, carry, xs[t])
        result = carry

The time loop runs inside the tile, so the carry stays in registers or in the
L1 cache.  A carry too large for the stack lives in its result buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from jax.extend.core import Literal, Var
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory
from onescan.emit.body import literal
from onescan.emit.buffers import Buffers
from onescan.emit.control import emit_body, renew
from onescan.emit.emitter import Emitter
from onescan.emit.prefetch import Span
from onescan.emit.staged import STEPS, Stage, chunks
from onescan.loop import Atom
from onescan.plan.parts import Part, parts
from onescan.plan.patience import operations_in
from onescan.plan.plan import Lane, Plan

#: a carry of more bytes than this (in one tile) stays in its result buffer
RESIDENT = 1 << 16
#: bytes of one x or y from which it is fetched a step ahead, and of all together, as a
#: part of the L2 cache: more would drive out of it what this step uses
SPAN = 1 << 10
AHEAD = 5 / 32

OneStep = Callable[[ty.Value, dict[Any, Array]], None]


class Tile(Buffers):
    """The code of one tile.

    What is the same for every lane (a key that all share, a counter) is done
    once a step, before the blocks of lanes; the rest once for each block.
    """

    resident = RESIDENT
    #: whether what a step gives in several places is put into memory before
    keeps_results = True
    starts: dict[Any, ty.Value]  # of this tile along each lane axis

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.common, self.laned = parts(e.plan)
        wanted = Counter(v for v in self.loop.body.jaxpr.outvars if isinstance(v, Var))
        #: what a step gives in several places, as a carry and as a y
        self.wanted_twice = {
            v for v, times in wanted.items() if times > 1 and self.keeps_results
        }

    def emit(self) -> None:
        e = self.e
        starts = self.starts = _starts(e, self.number)
        e.bases = dict(starts)
        cells = self._common_cells()
        vector = self.plan.vector
        rows = self._laned_cells(vector) if vector else {}
        for here in self._blocks(starts):
            for var, cell in self._here(rows, here).items():
                e.put(cell, self._whole(self._init_of(var)))

        with self._prepared():
            self._over_time(partial(self._step, starts, cells, rows))
        self._deliver_all(cells)
        for here in self._blocks(starts):
            self._deliver_all(self._here(rows, here))
        e.finish()
        e.b.ret_void()
        e.entry.branch(e.function.blocks[1])

    # time

    def _prepared(self) -> AbstractContextManager[None]:
        """What stands before the first step and after the last."""
        return nullcontext()

    def _step(
        self,
        starts: dict[Any, ty.Value],
        cells: dict[Any, Array],
        rows: dict[Any, Memory],
        step: ty.Value,
        loaded: dict[Any, Array],
    ) -> None:
        """One step; some of its xs may have been loaded."""
        e, t = self.e, self._time(step)
        e.bases = dict(starts)
        e.ahead = self._ahead(t)
        known = self._run(self.common, cells, loaded, t)
        # what no lane reads is written where it belongs
        read = self.laned.invars if e.renews_in_place else known
        known |= {var: e.once(known[var]) for var in read if var in known}
        for here in self._blocks(starts):
            block = self._here(rows, here)
            values = self._run(self.laned, block, {**cells, **known}, t)
            self._finish(self.laned, block, values, t)
        e.bases = dict(starts)
        self._finish(self.common, cells, known, t)

    def _ahead(self, t: ty.Value) -> list[Span]:
        """The memory that the next step reads and writes, as much as may be fetched."""
        if self.plan.vector is not None or not self.e.fetches_ahead:
            return []
        e, spans, left = self.e, [], self.plan.l2 * AHEAD
        following = e.b.add(t, ir.Constant(ty.I64, -1 if self.loop.reverse else 1))
        unread = self.plan.counters | self.plan.zeros
        xs = [i for i in range(self.fixed, self.num_in) if i not in unread]
        ys = range(self.first_y, len(self.variables))
        for buffers in (xs, ys):
            found = []
            for i in buffers:
                if self._first(i) != i:
                    continue
                array = self._slice(i, following)
                assert array.memory is not None
                size = _bytes(array) * self._parts(i)
                if size >= SPAN and array.memory.is_dense(array.shape):
                    start = array.memory.start(e.b)
                    found.append(Span(start, size, written=buffers is ys))
            left -= sum(span.size for span in found)
            spans += found if left >= 0 else []
        return spans

    def _over_time(self, one_step: OneStep) -> None:
        """Run every step."""
        if self.stages:
            self._by_chunks(one_step)
            return
        each = operations_in(self.plan, self.loop.body.jaxpr)
        with self.e.patient_loop(self.loop.length, each) as step:
            one_step(step, {})

    def _by_chunks(self, one_step: OneStep) -> None:
        """Run every step, some at a time, between what moves their xs and ys."""
        e, loop = self.e, self.loop
        with chunks(e, loop.length, loop.reverse) as self.chunk:
            for block, i, stage in self._stages(inwards=True):
                stage.bring(block, self.chunk, self._memory(i))
            with e.loop(self.chunk.count, about=STEPS) as k:
                one_step(e.b.add(self.chunk.begin, k), {})
            for block, i, stage in self._stages(inwards=False):
                with e.one_writer(stage.lanes):
                    stage.take(block, self.chunk, self._memory(i))

    def _stages(self, inwards: bool) -> Iterator[tuple[Index, int, Stage]]:
        """Code for each block and each stage, of xs or of ys."""
        found = [i for i in self.stages if (i < self.num_in) == inwards]
        for block in self._blocks(self.starts) if found else ():
            for i in found:
                yield block, i, self.stages[i]
        self.e.bases = dict(self.starts)

    def _time(self, step: ty.Value) -> ty.Value:
        """Where the xs and ys of a step stand."""
        if not self.loop.reverse:
            return step
        return self.e.b.sub(ir.Constant(ty.I64, self.loop.length - 1), step)

    # carries

    def _init_of(self, var: Atom) -> int:
        return self.loop.num_consts + self.carries.index(var)

    def _final_of(self, var: Atom) -> int:
        return self.num_in + self.carries.index(var)

    def _common_cells(self) -> dict[Any, Array]:
        cells = {}
        for var in self.carries:
            if var in self.laned.members:
                continue
            init, final = (
                self._whole(self._init_of(var)),
                self._whole(self._final_of(var)),
            )
            cells[var] = final if self._resides(var, init) else self._cell(init, var)
            self.e.put(cells[var], init)
        return cells

    def _resides(self, var: Atom, init: Array) -> bool:
        """Whether a carry stays in its result buffer."""
        return _bytes(init) > self.resident and _is_mine(self.plan, init)

    def _laned_cells(self, vector: Lane) -> dict[Any, Memory]:
        """For each carry along the vector lane, memory for all blocks of a tile."""
        rows = {}
        for var in self.carries:
            if var in self.laned.members:
                shape = (vector.blocks, *self.plan.local_shape(var))
                lanes = (None, *self.plan.local_lanes(var))
                rows[var] = self.e.scratch(shape, lanes, var.aval.dtype)
        return rows

    def _here(self, rows: dict[Any, Memory], block: Index) -> dict[Any, Array]:
        """The carries of one block."""
        e, cells = self.e, {}
        for var, memory in rows.items():
            here = memory.within(e.b, block)
            shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
            cells[var] = e.stored(here, shape, lanes)
        return cells

    def _cell(self, like: Array, var: Atom) -> Array:
        memory = self.e.scratch(like.shape, like.lanes, like.dtype)
        return self.e.stored(memory, like.shape, like.lanes)

    def _deliver_all(self, cells: dict[Any, Array]) -> None:
        """Put the last values of carries into their results."""
        for var, cell in cells.items():
            i = self._final_of(var)
            if i in self.plan.joined:
                other = cells[self.variables[i + 1]]
                with self.e.one_writer(cell.lanes):
                    self.e.put_parts(
                        [self._whole(i), self._whole(i + 1)], [cell, other]
                    )
            elif self._first(i) == i:
                self._deliver(var, cell)

    def _deliver(self, var: Atom, cell: Array) -> None:
        """Put the last value of a carry into its result."""
        final = self._whole(self._final_of(var))
        if cell.memory is not None and cell.memory.pointer is final.memory.pointer:  # type: ignore[union-attr]
            return
        with self.e.one_writer(cell.lanes):
            self.e.put(final, cell)

    # blocks

    def _blocks(self, starts: dict[Any, ty.Value]) -> Iterator[Index]:
        """Code for each block of the vector lane, with the bases set to it."""
        e, vector = self.e, self.plan.vector
        if vector is None or not self.laned.members:
            return
        if vector.blocks == 1:
            e.bases = {**starts, vector: _inside(e, starts[vector], vector)}
            self.block = 0
            yield 0
            return
        with e.loop(vector.blocks) as block:
            step = e.b.mul(block, ir.Constant(ty.I64, vector.extent))
            base = e.b.add(starts[vector], step)
            e.bases = {**starts, vector: _inside(e, base, vector)}
            self.block = block
            yield block

    # a step

    def _run(
        self, part: Part, cells: dict[Any, Array], known: dict[Any, Array], t: ty.Value
    ) -> dict[Any, Array]:
        args = []
        for var in part.invars:
            if var in cells:
                args.append(cells[var])
            elif var in known:
                args.append(known[var])
            else:
                args.append(self._argument(var, t))
        owned = self._owned(cells)
        after = zip(self.carries, self.loop.body.jaxpr.outvars, strict=False)
        homes = {
            new: cells[old]
            for old, new in after
            if old in cells and isinstance(new, Var)
        }
        outs = emit_body(self.e, part, args, owned, homes, self.wanted_twice)
        values = dict(zip(part.outvars, outs, strict=True))
        return {
            var: self.e.once(value) if var in self.wanted_twice else value
            for var, value in values.items()
        }

    def _owned(self, cells: dict[Any, Array]) -> set[Any]:
        """The memory of carries that a step may write to before its end."""
        return {cell.memory for cell in cells.values()}

    def _argument(self, var: Var, t: ty.Value) -> Array:
        i = self.loop.body.jaxpr.invars.index(var)
        return self._slice(i, t) if i >= self.fixed else self._whole(i)

    def _finish(
        self, part: Part, cells: dict[Any, Array], values: dict[Any, Array], t: ty.Value
    ) -> None:
        """Write the outputs of a step, then renew the carries."""
        e = self.e
        outvars = self.loop.body.jaxpr.outvars
        for k, var in enumerate(outvars[self.loop.num_carry :]):
            laned = isinstance(var, Var) and var in self.laned.members
            if laned == (part is self.laned):
                self._put_y(self.first_y + k, values, t)
        pairs = [
            (cells[before], self._value(after, values))
            for before, after in zip(self.carries, outvars, strict=False)
            if before in cells
        ]
        renew(e, [cell for cell, _ in pairs], [value for _, value in pairs])

    def _put_y(self, i: int, values: dict[Any, Array], t: ty.Value) -> None:
        """Write a y of a step, or both of its parts where they share a buffer."""
        value = self._value(self.variables[i], values)
        if i in self.plan.joined:
            both = [value, self._value(self.variables[i + 1], values)]
            with self.e.one_writer(value.lanes):
                self.e.put_parts([self._slice(i, t), self._slice(i + 1, t)], both)
        elif self._first(i) == i:
            with self.e.one_writer(value.lanes):
                self.e.put(self._slice(i, t), value)

    def _value(self, var: Atom, values: dict[Any, Array]) -> Array:
        return literal(self.e, var) if isinstance(var, Literal) else values[var]


def _bytes(array: Array) -> int:
    return int(np.prod(array.shape)) * array.dtype.itemsize


def _is_mine(plan: Plan, carry: Array) -> bool:
    """Whether no other tile writes what a tile writes of this carry's result."""
    return all(
        lane in carry.lanes and lane.size % lane.extent == 0
        for lane in plan.lanes
        if lane.tiles > 1
    )


def _starts(e: Emitter, tile: ty.Value) -> dict[Any, ty.Value]:
    """Where this tile begins along each lane axis."""
    b, starts = e.b, {}
    for lane in reversed(e.plan.lanes):
        count = ir.Constant(ty.I64, lane.tiles)
        number = b.urem(tile, count) if lane.tiles > 1 else ir.Constant(ty.I64, 0)
        tile = b.udiv(tile, count) if lane.tiles > 1 else tile
        start = b.mul(number, ir.Constant(ty.I64, lane.extent * lane.blocks))
        starts[lane] = start if lane.vector else _inside(e, start, lane)
    return starts


def _inside(e: Emitter, base: ty.Value, lane: Lane) -> ty.Value:
    """A block's beginning, moved back where the block would leave the axis."""
    if lane.size % (lane.extent * lane.blocks) == 0:
        return base
    last = ir.Constant(ty.I64, lane.size - lane.extent)
    return e.b.select(e.b.icmp_signed(">", base, last), last, base)
