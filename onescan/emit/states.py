"""Later states of the same array: what updates, loops and branches make of it.

They may write them into its own memory, where nobody needs the earlier one.
"""

from __future__ import annotations

from typing import Any

from jax.extend.core import Jaxpr, Var

from onescan import compat
from onescan.loop import Atom, Equation
from onescan.primitives import UPDATES

#: elements of an array from which a loop or branch inside should not copy it
TABLE = 64


def carried(eqn: Equation) -> tuple[int, int]:
    """Where the operands that a loop carries begin and end; nowhere for what is none.

    Its first results are what they become.
    """
    if eqn.primitive.name == "while":
        first = eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
        return first, len(eqn.invars)
    if eqn.primitive.name == "scan":
        inner = compat.loop_of(eqn.params)
        return inner.num_consts, inner.num_consts + inner.num_carry
    return 0, 0


def origin(jaxpr: Jaxpr, var: Any) -> Atom:
    """The first state of a value: as it is, or before updates, loops and branches."""
    makers = {v: (eqn, k) for eqn in jaxpr.eqns for k, v in enumerate(eqn.outvars)}
    while isinstance(var, Var) and var in makers:
        earlier = _earlier(*makers[var])
        if earlier is None:
            break
        var = earlier
    return var


def _earlier(eqn: Equation, k: int) -> Atom | None:
    """The operand of which a result is a later state."""
    first, end = carried(eqn)
    if eqn.primitive.name in UPDATES:
        return eqn.invars[0]
    if k < end - first:
        return eqn.invars[first + k]
    if eqn.primitive.name == "cond":
        place = argument_of(eqn, k)
        return None if place is None else eqn.invars[1 + place]
    return None


def argument_of(cond: Equation, k: int) -> int | None:
    """The argument of branches of which a result is a later state in some of them."""
    for branch in cond.params["branches"]:
        first = origin(branch.jaxpr, branch.jaxpr.outvars[k])
        for place, var in enumerate(branch.jaxpr.invars):
            if var is first:
                return place
    return None
