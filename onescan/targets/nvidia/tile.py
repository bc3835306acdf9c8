"""The time loop of a tile on a GPU: what a thread's tile and a block's have in common.

A GPU hides the latency of memory behind other threads, and a loop with few lanes has
few of them.  So the loads of xs, which depend on nothing the loop computes, are
issued long before their numbers are used: a group of steps ahead by a thread that is
alone (`thread_tile`), two steps ahead by the threads of a block (`block_tile`).
"""

from __future__ import annotations

from math import prod
from typing import Any

from jax.extend.core import Var

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Memory
from onescan.emit.tile import OneStep, Tile


class GpuTile(Tile):
    """What both kinds of tiles have in common."""

    keeps_results = False

    def emit(self) -> None:
        self.consts: dict[Any, Array] = {}
        super().emit()

    def _over_time(self, one_step: OneStep) -> None:
        # once, before the first step: code that runs there may read them
        consts = self.loop.body.jaxpr.invars[: self.loop.num_consts]
        self.consts = {var: self._whole(i) for i, var in enumerate(consts)}

    def _argument(self, var: Var, t: ty.Value) -> Array:
        return self.consts[var] if var in self.consts else super()._argument(var, t)

    def _room(self, i: int, *steps: int) -> Memory:
        var = self.variables[i]
        shape = (*steps, *self.plan.local_shape(var))
        lanes = (*[None] * len(steps), *self.plan.local_lanes(var))
        return self.e.scratch(shape, lanes, var.aval.dtype)

    def _held(self, i: int, room: Memory) -> Array:
        var = self.variables[i]
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        return self.e.stored(room, shape, lanes)

    def _count(self, i: int) -> int:
        """Numbers of a buffer in one tile and step."""
        return prod(self.plan.local_shape(self.variables[i]))
