"""Emission for a CPU: what is x86's alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from llvmlite import ir

from onescan.emit import dot
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.emitter import CHEAP, Emitter, opaque
from onescan.emit.outer import is_outer, outer
from onescan.emit.rules import RULES
from onescan.emit.tile import Tile
from onescan.emit.transposition import transpose_in_squares
from onescan.loop import Atom, Equation
from onescan.plan.late import late_choices
from onescan.plan.plan import Plan
from onescan.targets.cpu import heap
from onescan.targets.cpu.positions import positions
from onescan.targets.cpu.products.amx_steps import by_unit, unit
from onescan.targets.cpu.products.of_bytes import of_bytes
from onescan.targets.cpu.products.panels import by_panels, panels_of, prepared
from onescan.targets.cpu.products.steps import tiled
from onescan.targets.cpu.products.streamed import stream_of, streamed


def dot_general(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """A product, by the matrix unit where that is planned, or one of two numbers."""
    if product := tiled(e.plan, eqn):
        x, y = map(e.once, operands)
        return [by_unit(e, product, x, y)]
    if stream := stream_of(e.plan, eqn):
        return [streamed(e, eqn, stream, operands)]
    if panels := panels_of(e.plan, eqn):
        return [by_panels(e, eqn, panels, operands)]
    if made := of_bytes(e, eqn, operands):
        return [made]
    if is_outer(eqn):
        return outer(e, eqn, operands)
    return dot.dot_general(e, eqn, operands)


OURS = {"dot_general": dot_general, "transpose": transpose_in_squares}
#: bytes of all values that lie on the stack
ON_STACK = 1 << 18


class CpuEmitter(Emitter):
    branches_over_updates = True
    fetches_ahead = True
    has_routines = True
    pulls_parts = True
    rules = {**RULES, **OURS}  # noqa: RUF012, nobody changes it

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        super().__init__(plan, function)
        self.late = late_choices(plan.loop)
        self.heap: list[ty.Value] = []
        self.heap_bytes = 0

    def allocated(self, kind: ir.Type, size: int) -> ty.Value:
        """On the stack while there is room, then on the heap."""
        if self.stack_bytes + size <= ON_STACK:
            return super().allocated(kind, size)
        self.heap.append(heap.allocate(self.entry, size))
        self.heap_bytes += size
        return opaque(self.heap[-1])

    def inside(self) -> AbstractContextManager[None]:
        return self.b.inside()

    def keeps(self, body: Any, var: Atom, array: Array) -> bool:
        """Where a value is not pulled at one index alone."""
        if not super().keeps(body, var, array):
            return False
        return var in self.plan.stored or len(body.places(var)) > 1

    def computed_once(self, var: Atom, array: Array) -> Array:
        if array.cost <= CHEAP:
            return array

        def at(index: tuple[Index, ...]) -> ty.Value:
            known, key = self.b.pulled, (at, index)
            if key not in known:
                known[key] = array.at(index)
            return known[key]

        shared = array.shared | {(var, array.own_cost)}
        return replace(array, at=at, shared=shared)

    def pulled_often(self, var: Atom, array: Array, out: Atom) -> Array:
        """In memory where it takes long, or would keep a carry from being renewed."""
        if self.pulls(var, array):
            return array
        shape = self.plan.local_shape(out)
        carries = [c.memory for c in self.body.homes.values() if c.shape == shape]
        if array.memory is None and array.reads.intersection(carries):
            return self.materialise(array)
        return self.once(array)

    def finish(self) -> None:
        """Give back what lies on the heap."""
        for pointer in self.heap:
            heap.free(self.b, pointer)


class CpuTile(Tile):
    @contextmanager
    def _prepared(self) -> Iterator[None]:
        constant = lambda var: self._whole(self.variables.index(var))
        ready = unit, prepared, positions
        with ExitStack() as steps:
            for make in ready:
                steps.enter_context(make(self.e, constant))
            yield
