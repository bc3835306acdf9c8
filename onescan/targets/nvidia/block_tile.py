"""The time loop of a tile that the threads of a block do together."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any

from jax.extend.core import Var
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory
from onescan.emit.control import renew
from onescan.emit.paired import PairedTile
from onescan.emit.tile import OneStep
from onescan.loop import Atom
from onescan.targets.nvidia import (
    block_concatenate,
    block_cumulative,
    block_eigh,
    block_linalg,
    block_products,
    block_qr,
    block_reductions,
    block_svd,
)
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.flat_index import unflattened
from onescan.targets.nvidia.shares import sent_around, stays_home
from onescan.targets.nvidia.tile import GpuTile

#: rules of tiles that a block does together, in place of those of the table
FILES = (
    block_reductions,
    block_products,
    block_concatenate,
    block_cumulative,
    block_linalg,
    block_qr,
    block_eigh,
    block_svd,
)
RULES = {name: rule for file in FILES for name, rule in file.RULES.items()}
#: numbers of one x that a thread of a block may load ahead
EACH = 8


class BlockTile(PairedTile, GpuTile):
    """A tile that the threads of a block do together.

    A carry that is computed anew in every step has two places, read and written in
    turns, so that no thread overwrites what another still reads; and the results of
    a step are computed together, element by element.
    """

    resident = 1 << 15
    rules: Mapping[str, Any] = MappingProxyType(RULES)
    e: BlockEmitter

    @property
    def defers(self) -> bool:
        """Whether ys are written after the barrier, which waits for them in a team."""
        return self.e.team > 1

    def _over_time(self, one_step: OneStep) -> None:
        super()._over_time(one_step)
        e, length = self.e, self.loop.length
        e.rules = {**e.rules, **self.rules}
        e.prepare = ir.IRBuilder(e.function.append_basic_block("prepare"))
        e.b.branch(e.prepare.block)
        start = e.function.append_basic_block("first")
        e.b.position_at_end(start)
        limit = EACH * e.threads
        ahead = [i for i in range(self.fixed, self.num_in) if self._count(i) <= limit]
        jaxpr = self.loop.body.jaxpr
        self.at_home = {
            i for i in ahead if stays_home(jaxpr, self.variables[i], e.unit)
        }
        held = {i: self._room(i, *self._turns(self._count(i))) for i in ahead}
        for i in self.at_home:
            held[i] = e.at_home(held[i])
        flying = {i: self._flying(i) for i in ahead}
        zero, one = (ir.Constant(ty.I64, k) for k in (0, 1))
        self._store(held, {i: self._loads(i, zero) for i in ahead}, zero)
        self._set(flying, {i: self._loads(i, self._held_back(one)) for i in ahead})
        # nobody reads ys; what has two places is read in one and written in the other
        for memory in [*held.values(), *self.paired.values()]:
            e.unwatched(memory.pointer)
        for k in range(len(self.loop.y_avals)):
            e.unwatched(self.pointers[self.first_y + k])
        by_mail = e.team > 1 and self._by_mail(ahead)
        letters = self._letters() if by_mail else []
        mail = e.open_mail(letters) if letters else None
        for var in sent_around(jaxpr, e.unit) if by_mail else ():
            e.mail_out(var)
        size = sum(self._bytes(memory) for memory in letters)
        with e.over_time(length) as step:
            e.now = step
            if mail:
                e.expect(mail, step, size)
            after = e.b.add(step, one)
            later = self._held_back(e.b.add(after, one))
            coming = {i: self._loads(i, later) for i in ahead}
            loaded = {
                self.variables[i]: self._held(i, self._turn(held[i], step))
                for i in ahead
            }

            def arrive() -> None:
                arrived = {i: [e.b.load(cell) for cell in flying[i]] for i in ahead}
                self._store(held, arrived, after)
                self._set(flying, coming)
                e.meet_at_end(by_mail)
                if mail:
                    e.wait(mail, step)

            self.arrive = arrive
            one_step(step, loaded)
        e.prepare.branch(start)
        e.finish()

    def _by_mail(self, ahead: list[int]) -> bool:
        """Whether all that a team exchanges can go by mail."""
        e = self.e
        shared_out = all(
            e.is_shared_out(self.plan.local_shape(v)) and v.aval.dtype.itemsize == 4
            for v in self.paired
        )
        return shared_out and all(
            i in self.at_home or self._count(i) == 1 for i in ahead
        )

    def _letters(self) -> list[Memory]:
        """The carries that go by mail: those of which a block needs all shares."""
        e, jaxpr, letters = self.e, self.loop.body.jaxpr, []
        for var, memory in self.paired.items():
            if stays_home(jaxpr, var, e.unit):
                e.at_home(memory)
            else:
                letters.append(memory)
        return letters

    def _bytes(self, memory: Memory) -> int:
        """Of one place of a carry."""
        return memory.strides[0] * memory.dtype.itemsize

    def _held_back(self, step: ty.Value) -> ty.Value:
        """A step, or the last one if there are not so many."""
        last, b = ir.Constant(ty.I64, self.loop.length - 1), self.e.b
        return b.select(b.icmp_signed("<", step, last), step, last)

    def _flying(self, i: int) -> list[ty.Value]:
        """Where a thread keeps what it loaded for the step after the next."""
        kind = ty.register_type(self.variables[i].aval.dtype)
        return [self.e.entry.alloca(kind) for _ in range(self._rounds(i))]

    def _set(self, cells: dict[int, list[Any]], values: dict[int, list[Any]]) -> None:
        for i, places in cells.items():
            for cell, value in zip(places, values[i], strict=True):
                self.e.b.store(value, cell)

    # two places, in turns

    def _turns(self, count: int) -> tuple[int, ...]:
        return (2,) if count > 1 else (1,)

    def _turn(self, memory: Memory, step: ty.Value) -> Memory:
        """The place of a step."""
        if self.e.is_private(memory):
            return memory.within(self.e.b, 0)
        return super()._turn(memory, step)

    # xs

    def _rounds(self, i: int) -> int:
        return -(-self._count(i) // self.e.threads)

    def _loads(self, i: int, step: ty.Value) -> list[ty.Value]:
        """The numbers of a step that this thread brings."""
        here = self._slice(i, self._time(step))
        return [here.at(self._place(i, k)) for k in range(self._rounds(i))]

    def _place(self, i: int, k: int) -> tuple[Index, ...]:
        e, shape = self.e, self.plan.local_shape(self.variables[i])
        thread, threads = e.thread, e.threads
        if i in self.at_home:
            thread, threads, shape = e.here, e.block, e.share(shape)
        count = prod(shape)
        if count == 1:
            first = (0,) * len(shape)
            return e.in_team(first) if i in self.at_home else first
        flat: Any = e.b.add(thread, ir.Constant(ty.I64, k * threads))
        if (k + 1) * threads > count:  # again the last one
            last = ir.Constant(ty.I64, count - 1)
            flat = e.b.select(e.b.icmp_unsigned("<", flat, last), flat, last)
        index = unflattened(e.b, flat, shape)
        return e.in_team(index) if i in self.at_home else index

    def _store(
        self,
        held: dict[int, Memory],
        values: dict[int, list[ty.Value]],
        step: ty.Value,
    ) -> None:
        """Put the numbers of a step where all threads will find them."""
        for i, room in held.items():
            here = self._turn(room, step)
            for k, value in enumerate(values[i]):
                here.store(self.e.b, self._place(i, k), value)

    # carries

    def _common_cells(self) -> dict[Any, Array]:
        self.paired = {}
        updated = self._updated()
        for var in self.carries:
            memory = None if var in updated else self._pair(var)
            if memory is not None:
                self.paired[var] = memory
        return super()._common_cells()

    def _pair(self, var: Atom) -> Memory | None:
        """Two places for a carry that is no single number, and not too large."""
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        size = prod(shape) * var.aval.dtype.itemsize
        if prod(shape) == 1 or size > self.resident:
            return None
        return self.e.scratch((2, *shape), (None, *lanes), var.aval.dtype)

    # a step

    def _step(
        self,
        starts: dict[Any, ty.Value],
        cells: dict[Any, Array],
        rows: dict[Any, Memory],
        step: ty.Value,
        loaded: dict[Any, Array],
    ) -> None:
        t = self._time(step)
        self.e.bases = dict(starts)
        now = {var: self._at(var, step) for var in self.paired}
        outs = self._run(self.common, {**cells, **now}, loaded, t)
        self._results(cells, outs, step, t)

    def _results(
        self,
        cells: dict[Any, Array],
        outs: dict[Any, Array],
        step: ty.Value,
        t: ty.Value,
    ) -> None:
        """Write the ys and the next carries, all that have one shape together."""
        e, num_carry = self.e, self.loop.num_carry
        outvars = self.loop.body.jaxpr.outvars
        following = e.b.add(step, ir.Constant(ty.I64, 1))
        pairs: list[tuple[Array, Array]] = []
        apart: list[tuple[Array, Array]] = []
        for before, after in zip(self.carries, outvars, strict=False):
            value = self._value(after, outs)
            if before in self.paired:
                pairs.append((self._at(before, following), value))
            else:
                apart.append((cells[before], value))
        later: list[tuple[Array, Array]] = []
        carried = {
            after: self._at(before, following)
            for before, after in zip(self.carries, outvars, strict=False)
            if before in self.paired and isinstance(after, Var)
        }
        for k, var in enumerate(outvars[num_carry:]):
            here = self._slice(self.first_y + k, t)
            if self.defers and isinstance(var, Var) and var in carried:
                later.append((here, carried[var]))
            elif self._is_written_by_all(here):
                pairs.append((here, self._value(var, outs)))
            else:
                with e.one_writer(here.lanes):
                    e.put(here, self._value(var, outs))
        with e.sending(step):
            self._put(pairs)
        renew(e, [cell for cell, _ in apart], [value for _, value in apart])
        self.arrive()
        # stores to the memory of the GPU take long: nobody should wait for them
        self._put([pair for pair in later if self._is_written_by_all(pair[0])])
        for here, value in later:
            if not self._is_written_by_all(here):
                with e.one_writer(here.lanes):
                    e.put(here, value)

    def _put(self, pairs: list[tuple[Array, Array]]) -> None:
        for shape in dict.fromkeys(target.shape for target, _ in pairs):
            self.e.put_all([pair for pair in pairs if pair[0].shape == shape])

    def _is_written_by_all(self, target: Array) -> bool:
        """Whether every tile has a part of a result to write."""
        several = [lane for lane in self.plan.lanes if lane.tiles > 1]
        return all(lane in target.lanes for lane in several)
