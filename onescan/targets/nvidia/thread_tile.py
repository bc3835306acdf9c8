"""The time loop of a tile that one thread of a GPU does, a group of steps at a time."""

from __future__ import annotations

from itertools import product
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Memory
from onescan.emit.tile import OneStep, Tile
from onescan.plan.patience import operations_in
from onescan.targets.nvidia.tile import GpuTile

#: steps of a group, numbers that are loaded ahead for one, and operations in one
GROUP = 16
LOADED = 64
OPERATIONS = 600


class ThreadTile(GpuTile):
    """A tile that one thread does."""

    resident = 1024

    def _over_time(self, one_step: OneStep) -> None:
        super()._over_time(one_step)
        e, length = self.e, self.loop.length
        ahead = [
            i for i in range(self.fixed, self.num_in) if self._count(i) <= LOADED // 4
        ]
        steps = self._group(sum(map(self._count, ahead)))
        if steps == 1:
            Tile._over_time(self, one_step)
            return
        chunks, rest = divmod(length, steps)
        held = {i: self._room(i, steps) for i in ahead}
        for i in ahead:
            self._store(held[i], self._loads(i, ir.Constant(ty.I64, 0), steps))
        with e.loop(chunks) as chunk:
            first = e.b.mul(chunk, ir.Constant(ty.I64, steps))
            last = ir.Constant(ty.I64, (chunks - 1) * steps)
            after = e.b.add(first, ir.Constant(ty.I64, steps))
            after = e.b.select(e.b.icmp_signed("<", after, last), after, last)
            coming = {i: self._loads(i, after, steps) for i in ahead}
            with e.loop(steps, unroll=True) as k:  # so that registers hold xs
                loaded = {
                    self.variables[i]: self._held(i, held[i].within(e.b, k))
                    for i in ahead
                }
                one_step(e.b.add(first, k), loaded)
            for i in ahead:
                self._store(held[i], coming[i])
        if rest:
            with e.loop(rest) as step:
                one_step(e.b.add(step, ir.Constant(ty.I64, chunks * steps)), {})

    def _group(self, numbers: int) -> int:
        """Steps that are done at a time."""
        work = operations_in(self.plan, self.loop.body.jaxpr) * self.e.dear
        most = min(LOADED // max(numbers, 1), int(OPERATIONS // max(work, 1)))
        return max(1, min(GROUP, most, self.loop.length))

    def _places(self, i: int) -> list[tuple[int, ...]]:
        return list(product(*map(range, self.plan.local_shape(self.variables[i]))))

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
