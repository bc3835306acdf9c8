"""Arrays put together from pieces, by the threads of a block."""

from __future__ import annotations

from typing import Any

from onescan.emit import structural
from onescan.emit.arrays import Array, add
from onescan.loop import Atom, Equation
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_reductions import Place


def concatenate(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """Pieces of one shape are made together: they may have much in common."""
    if len({x.shape for x in operands}) > 1:
        return structural.RULES["concatenate"](e, eqn, operands)
    axis = eqn.params["dimension"]

    def place(k: int, index: Place) -> Place:
        start = k * operands[0].shape[axis]
        return (*index[:axis], add(e.b, index[axis], start), *index[axis + 1 :])

    return [_pieces(e, eqn.outvars[0], operands, place)]


def stack(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    axis = eqn.params["axis"] % len(eqn.outvars[0].aval.shape)
    place = lambda k, index: (*index[:axis], k, *index[axis:])
    return [_pieces(e, eqn.outvars[0], operands, place)]


def _pieces(e: BlockEmitter, var: Atom, operands: list[Array], place: Any) -> Array:
    with e.filling(var) as target:
        memory: Any = target.memory

        def visit(index: Place) -> None:
            for k, value in enumerate([x.at(index) for x in operands]):
                memory.store(e.b, place(k, index), value)

        e.nest(operands[0].shape, operands[0].lanes, visit)
    return target


RULES = {"concatenate": concatenate, "stack": stack}
