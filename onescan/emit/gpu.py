"""The kernel of a loop on a GPU: what a thread does, and which tile it does.

The same tiles as on a CPU, one for each thread.  A thread is alone with its
latencies, so it loads the xs of the coming steps while it works on these: `AHEAD`
steps at a time are unrolled, and the loads of the next such group are issued before
the work of this one.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Memory
from onescan.emit.emitter import Emitter
from onescan.emit.kernel import OneStep, Tile
from onescan.loop import LeaveToXla
from onescan.plan.plan import Grid, Plan
from onescan.plan.work import work_of
from onescan.runtime import ptx

#: steps unrolled at a time, the numbers loaded ahead for them, and the operations
#: in them
AHEAD = 8
LOADED = 32
OPERATIONS = 600
#: bytes of values that one thread may hold
LARGEST = 4096

_TID = "llvm.nvvm.read.ptx.sreg.tid.x"
_BLOCK = "llvm.nvvm.read.ptx.sreg.ctaid.x"


class ThreadEmitter(Emitter):
    """Code of one thread.  What a loop indexes lies in slow memory: unroll."""

    unroll, unrolled_operations, unrolled_in_all = 128, 1024, 8000


def build(plan: Plan, capability: int) -> ir.Module:
    """The LLVM module of a loop planned for a GPU; it defines `kernel`."""
    assert plan.grid is not None
    module = ir.Module("onescan")
    module.triple = ptx.TRIPLE
    module.data_layout = ptx.data_layout(capability)
    body = plan.loop.body
    count = len(body.in_avals) + len(body.out_avals)
    void = ir.VoidType()
    tile = ir.Function(module, ir.FunctionType(void, [*[ty.PTR] * count, ty.I64]), "tile")
    tile.linkage = "internal"
    tile.attributes.add("alwaysinline")
    kernel = ir.Function(module, ir.FunctionType(void, [ty.PTR] * count), "kernel")
    kernel.calling_convention = "ptx_kernel"
    for argument in [*tile.args[:-1], *kernel.args]:
        argument.add_attribute("noalias")
    e = ThreadEmitter(plan, tile)
    ThreadTile(e).emit()
    if e.stack_bytes > LARGEST:
        raise LeaveToXla(
            f"one step holds {e.stack_bytes // 1024} KiB of values for each of "
            f"{plan.tiles} lanes, more than a GPU's threads can keep"
        )
    _launched(kernel, tile, plan.grid, plan.tiles)
    limit = ir.Constant(ty.I32, plan.grid.threads)
    module.add_named_metadata("nvvm.annotations", [kernel, "maxntidx", limit])
    return module


def _launched(
    kernel: ir.Function, tile: ir.Function, grid: Grid, tiles: int
) -> None:
    """The kernel: each thread (or block) does the tile of its number."""
    b = ir.IRBuilder(kernel.append_basic_block("entry"))
    number = special(b, _BLOCK)
    if not grid.together:
        first = b.mul(number, ir.Constant(ty.I32, grid.threads))
        number = b.add(first, special(b, _TID))
    number = b.zext(number, ty.I64)
    work, done = kernel.append_basic_block("work"), kernel.append_basic_block("done")
    b.cbranch(b.icmp_unsigned("<", number, ir.Constant(ty.I64, tiles)), work, done)
    b.position_at_end(work)
    b.call(tile, [*kernel.args, number])
    b.branch(done)
    b.position_at_end(done)
    b.ret_void()


def special(b: ty.Builder, name: str) -> ty.Value:
    """One of the numbers a thread is given by the hardware."""
    kind = ir.FunctionType(ty.I32, [])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    return b.call(function, [])


class ThreadTile(Tile):
    """The code of one tile, done by one thread."""

    def _over_time(self, one_step: OneStep) -> None:
        e, length = self.e, self.loop.length
        ahead = self._ahead()
        steps = self._group()
        if steps == 1:
            super()._over_time(one_step)
            return
        chunks, rest = divmod(length, steps)
        held = {i: self._room(i, steps) for i in ahead}
        for i in ahead:
            self._store(held[i], self._loads(i, ir.Constant(ty.I64, 0), steps))
        with e.loop(chunks, unroll=1) as chunk:
            first = e.b.mul(chunk, ir.Constant(ty.I64, steps))
            last = ir.Constant(ty.I64, (chunks - 1) * steps)
            after = e.b.add(first, ir.Constant(ty.I64, steps))
            after = e.b.select(e.b.icmp_signed("<", after, last), after, last)
            coming = {i: self._loads(i, after, steps) for i in ahead}
            for k in range(steps):
                loaded = {self.variables[i]: self._held(i, held[i], k) for i in ahead}
                one_step(e.b.add(first, ir.Constant(ty.I64, k)), loaded)
            for i in ahead:
                self._store(held[i], coming[i])
        if rest:
            with e.loop(rest, unroll=1) as step:
                one_step(e.b.add(step, ir.Constant(ty.I64, chunks * steps)), {})

    def _ahead(self) -> list[int]:
        """The xs that are loaded ahead: those with few numbers for each thread."""
        count = lambda i: len(self._places(i))
        return [i for i in range(self.fixed, self.num_in) if count(i) <= LOADED // 4]

    def _group(self) -> int:
        """Steps that are unrolled at a time."""
        numbers = sum(len(self._places(i)) for i in self._ahead())
        lanes = max(self.plan.tiles, 1)
        work = sum(w.operations for w in work_of(self.loop.body.jaxpr)) / lanes
        most = min(LOADED // max(numbers, 1), int(OPERATIONS // max(work, 1)))
        return max(1, min(AHEAD, most, self.loop.length))

    def _places(self, i: int) -> list[tuple[int, ...]]:
        return list(product(*map(range, self.plan.local_shape(self.variables[i]))))

    def _room(self, i: int, steps: int) -> Memory:
        var = self.variables[i]
        shape = (steps, *self.plan.local_shape(var))
        lanes = (None, *self.plan.local_lanes(var))
        return self.e.scratch(shape, lanes, var.aval.dtype)

    def _loads(self, i: int, first: ty.Value, steps: int) -> dict[Any, ty.Value]:
        e, values = self.e, {}
        for k in range(steps):
            here = self._slice(i, self._time(e.b.add(first, ir.Constant(ty.I64, k))))
            for place in self._places(i):
                values[(k, *place)] = here.at(place)
        return values

    def _store(self, room: Memory, values: dict[Any, ty.Value]) -> None:
        for place, value in values.items():
            room.store(self.e.b, place, value)

    def _held(self, i: int, room: Memory, k: int) -> Array:
        var = self.variables[i]
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        return self.e.stored(room.within(self.e.b, k), shape, lanes)
