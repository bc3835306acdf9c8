"""Positions that are the same in every step, held inside their array once.

A mesh or a graph reads `x[edges]` in every step, with the same edges.  Each position is
clamped before it is used, which takes longer than the access itself; what does not
change between steps is clamped before the first one, into memory of its own.  Updates
are not faster so: they wait for each other (on a Neoverse N1 they are slower).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from jax.extend.core import Var

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, as_value
from onescan.emit.emitter import Emitter
from onescan.emit.places import Ready, asks, held, lasts
from onescan.loop import Equation
from onescan.plan.plan import Plan

#: steps from which a copy is worth it, and how many positions of one array
STEPS = 8
FEWEST, MOST = 8, 1 << 17
#: what shows an array differently, its elements in the same order
SHOWN = ("broadcast_in_dim", "expand_dims", "reshape", "squeeze")


@contextmanager
def positions(e: Emitter, constant: Callable[[Any], Array]) -> Iterator[None]:
    """Make positions ready for the steps emitted inside."""
    eqns = e.plan.loop.body.jaxpr.eqns
    makers = {v: eqn for eqn in eqns for v in eqn.outvars}
    for eqn in eqns:
        source = _source(e.plan, eqn, makers)
        if source is not None and (given := _as_positions(eqn, constant(source))):
            e.ready[id(eqn)] = _held(e, eqn, given)
    yield


def _source(plan: Plan, eqn: Equation, makers: Mapping[Any, Equation]) -> Any:
    """The constant of the loop that the positions of a gather are."""
    loop = plan.loop
    if eqn.primitive.name != "gather":
        return None
    var: Any = eqn.invars[1]
    size = prod(var.aval.shape)
    if loop.is_while or loop.length < STEPS or not FEWEST <= size <= MOST:
        return None
    while isinstance(var, Var) and (maker := makers.get(var)) is not None:
        if maker.primitive.name not in SHOWN:
            return None
        (shown, *_) = maker.invars
        if prod(shown.aval.shape) != size:
            return None
        var = shown
    constants = loop.body.jaxpr.invars[: loop.num_consts]
    if not any(v is var for v in constants) or any(plan.local_lanes(var)):
        return None
    return var if np.dtype(eqn.invars[1].aval.dtype).itemsize == 4 else None


def _as_positions(eqn: Equation, source: Array) -> Memory | None:
    """A constant in the shape of an equation's positions."""
    memory, strides, size = source.memory, [], 1
    if memory is None or memory.group > 1 or not memory.is_dense(source.shape):
        return None
    for n in reversed(eqn.invars[1].aval.shape):
        strides.append(size)
        size *= n
    return replace(memory, strides=tuple(reversed(strides)))


def _held(e: Emitter, eqn: Equation, given: Memory) -> Ready:
    """All positions of an equation inside, and which were there already."""
    *batch, count = eqn.invars[1].aval.shape
    fresh = lambda shape, dtype: e.stored(
        e.scratch(shape, (None,) * len(shape), dtype), shape, (None,) * len(shape)
    )
    ready = Ready(
        fresh((*batch, count), given.dtype),
        fresh(tuple(batch), np.dtype(bool)) if asks(eqn) else None,
    )
    array = replace(ready.places, at=lambda index: given.load(e.b, index), memory=None)

    def visit(index: tuple[Index, ...]) -> None:
        inside: Any = None
        for k, last in enumerate(lasts(eqn)):
            place, ok = held(e, array, (*index, k), last, asks(eqn))
            number = as_value(e.b, place)
            number = e.b.trunc(number, ty.with_width(ty.I32, ty.width_of(number)))
            ready.places.memory.store(e.b, (*index, k), number)  # type: ignore[union-attr]
            inside = ok if inside is None else e.b.and_(inside, ok)
        if ready.inside is not None:
            ready.inside.memory.store(e.b, index, inside)  # type: ignore[union-attr]

    e.nest(tuple(batch), (None,) * len(batch), visit)
    return ready
