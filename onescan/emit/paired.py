"""Carries that have two places, and stand in one or the other by turns.

A step reads the one and writes the other, so that what it writes can wait for nobody
who still reads.
"""

from __future__ import annotations

from math import prod
from typing import Any

from jax.extend.core import Var
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Memory
from onescan.emit.states import TABLE, origin
from onescan.emit.tile import Tile
from onescan.loop import Atom
from onescan.primitives import UPDATES


class PairedTile(Tile):
    """A tile some of whose carries have two places."""

    #: both places of each of them, one behind the other
    paired: dict[Any, Memory]

    def _turn(self, memory: Memory, step: ty.Value) -> Memory:
        """The place of a step."""
        b = self.e.b
        return memory.within(b, b.and_(step, ir.Constant(ty.I64, 1)))

    def _at(self, var: Atom, step: ty.Value) -> Array:
        """Where a carry stands before a step."""
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        return self.e.stored(self._turn(self.paired[var], step), shape, lanes)

    def _updated(self) -> set[Any]:
        """The carries that are changed in place: by updates, or tables by loops."""
        jaxpr = self.loop.body.jaxpr
        made = {v: eqn.primitive.name for eqn in jaxpr.eqns for v in eqn.outvars}
        found = set()
        for before, after in zip(self.carries, jaxpr.outvars, strict=False):
            name = made.get(after) if isinstance(after, Var) else None
            table = prod(before.aval.shape) >= TABLE and origin(jaxpr, after) is before
            if name in UPDATES or (name and table):
                found.add(before)
        return found

    def _owned(self, cells: dict[Any, Array]) -> set[Any]:
        # who reads one place in a step is not waited for
        return {cell.memory for var, cell in cells.items() if var not in self.paired}

    def _resides(self, var: Atom, init: Array) -> bool:
        return var not in self.paired and super()._resides(var, init)

    def _cell(self, like: Array, var: Atom) -> Array:
        if var not in self.paired:
            return super()._cell(like, var)
        return self._at(var, ir.Constant(ty.I64, 0))

    def _deliver(self, var: Atom, cell: Array) -> None:
        if var in self.paired:
            cell = self._at(var, ir.Constant(ty.I64, self.loop.length))
        super()._deliver(var, cell)
