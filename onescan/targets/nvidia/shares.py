"""home: values of which each block of a team needs only its own share.

The blocks of a team cut an axis of `unit` positions into equal shares: the last
dimension of a loop's carries.  A value whose last dimension is a multiple of it lies
along it too (the gates of a recurrent cell lie side by side).  If everyone who reads
such a value reads it in the place where it stands, no block ever needs another's
share of it, and it need not be sent around.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from jax.extend.core import Jaxpr

from onescan.loop import Atom, Equation, Loop
from onescan.primitives import CONTROL, ELEMENTWISE, IDENTITIES


def unit_of(loop: Loop, team: int, is_lane: Callable[[Any, int], bool]) -> int:
    """The positions that a team shares among its blocks, 0 if there are none."""
    invars = loop.body.jaxpr.invars
    carries: list[Any] = invars[loop.num_consts : loop.num_consts + loop.num_carry]
    wide = [v for v in carries if prod(v.aval.shape) > 1]
    sizes = {v.aval.shape[-1] for v in wide}
    lanes = any(is_lane(v, len(v.aval.shape) - 1) for v in wide)
    if len(sizes) != 1 or team == 1 or lanes:
        return 0
    (size,) = sizes
    return size if size % team == 0 else 0


def stays_home(jaxpr: Jaxpr, var: Atom, unit: int) -> bool:
    """Whether every reader of a value reads it in place."""
    shape = var.aval.shape
    if not unit or not shape or shape[-1] % unit:
        return False
    readers = [eqn for eqn in jaxpr.eqns if any(v is var for v in eqn.invars)]
    return all(_in_place(jaxpr, eqn, shape, unit) for eqn in readers)


def sent_around(jaxpr: Jaxpr, unit: int) -> list[Any]:
    """Values put together of equal pieces that the team shares, and needs whole."""
    if not unit or any(eqn.primitive.name in CONTROL for eqn in jaxpr.eqns):
        return []
    return [
        eqn.outvars[0]
        for eqn in jaxpr.eqns
        if _of_equal_pieces(eqn, unit) and not stays_home(jaxpr, eqn.outvars[0], unit)
    ]


def _of_equal_pieces(eqn: Equation, unit: int) -> bool:
    """Whether each block puts its share of equal pieces together, four bytes each."""
    if eqn.primitive.name != "concatenate":
        return False
    pieces = {v.aval.shape for v in eqn.invars}
    last = eqn.params["dimension"] == len(eqn.outvars[0].aval.shape) - 1
    shared = all(shape[-1] % unit == 0 for shape in pieces)
    four = eqn.outvars[0].aval.dtype.itemsize == 4
    return len(pieces) == 1 and last and shared and four


def _in_place(jaxpr: Jaxpr, eqn: Equation, shape: tuple[int, ...], unit: int) -> bool:
    name, axis = eqn.primitive.name, len(shape) - 1
    if name in ELEMENTWISE | IDENTITIES:
        kept = all(out.aval.shape == shape for out in eqn.outvars)
    elif name == "split":
        sizes = eqn.params["sizes"]
        kept = eqn.params["axis"] == axis and all(n % unit == 0 for n in sizes)
    elif name == "slice":
        starts, strides = eqn.params["start_indices"], eqn.params["strides"]
        kept = starts[axis] % unit == 0 and (strides is None or set(strides) == {1})
    elif name == "concatenate":
        # put together by those who stand in the same places, and put away
        shapes = {v.aval.shape for v in eqn.invars}
        return eqn.params["dimension"] == axis and shapes == {shape}
    else:
        return False
    return kept and all(stays_home(jaxpr, out, unit) for out in eqn.outvars)
