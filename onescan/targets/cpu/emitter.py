"""Emission for a CPU: what is x86's alone."""

from __future__ import annotations

from contextlib import AbstractContextManager

from onescan.emit import dot
from onescan.emit.arrays import Array
from onescan.emit.emitter import Emitter
from onescan.emit.rules import RULES
from onescan.emit.tile import Tile
from onescan.loop import Equation
from onescan.targets.cpu.products.amx_steps import by_unit, unit
from onescan.targets.cpu.products.steps import tiled


def dot_general(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """A product, by the matrix unit where that is planned."""
    if product := tiled(e.plan, eqn):
        x, y = map(e.once, operands)
        return [by_unit(e, product, x, y)]
    return dot.dot_general(e, eqn, operands)


class CpuEmitter(Emitter):
    fetches_ahead = True
    rules = {**RULES, "dot_general": dot_general}  # noqa: RUF012, nobody changes it


class CpuTile(Tile):
    def _prepared(self) -> AbstractContextManager[None]:
        return unit(self.e, lambda var: self._whole(self.variables.index(var)))
