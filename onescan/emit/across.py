"""Questions to the lanes of a tile: does any of them go on, do all agree."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.convert import any_lane
from onescan.emit.emitter import Emitter


def any_of(e: Emitter, test: Array) -> ty.Value:
    """Whether a condition holds anywhere in this tile."""
    if not test.shape:
        return test.at(())
    found = e.entry.alloca(ty.I1)
    e.b.store(ir.Constant(ty.I1, 0), found)

    def visit(index: tuple[Index, ...]) -> None:
        here = any_lane(e.b, test.at(index))
        e.b.store(e.b.or_(e.b.load(found), here), found)

    e.sync()
    with e.by_itself():
        e.nest(test.shape, test.lanes, visit)
    return e.b.load(found)


def unvmap_any(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    (test,) = operands
    found = any_of(e, e.materialise(test))
    return [e.lazy(eqn.outvars[0], lambda index: found)]


def unvmap_all(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    (test,) = operands
    not_ = lambda index: e.b.not_(test.at(index))
    other = e.lazy(eqn.invars[0], not_, [test], 1, pointwise=True)
    missing = any_of(e, e.materialise(other))
    return [e.lazy(eqn.outvars[0], lambda index: e.b.not_(missing))]


RULES = {"unvmap_all": unvmap_all, "unvmap_any": unvmap_any}
