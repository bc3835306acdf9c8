"""idle: what the values of a body are where a flag is known to be down.

A value is one of the carries, by its number, or False, or what an array holds anyway
at the places that it is about to be written to, or not known.  Inner loops and branches
are looked into.  Equinox writes into arrays by `maybe_set(flag, array, new, at)`, which
puts back what is there where the flag is down: its updates are known by their scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend.core import Jaxpr, Var

from onescan import compat
from onescan.loop import Equation
from onescan.passes.equinox import SETTER
from onescan.primitives import record_of

Idle = int | None
#: False, and what is put back where it was
OFF, PUT_BACK = -1, -2
#: what shows a value differently
VIEWS = frozenset({"broadcast_in_dim", "convert_element_type", "expand_dims"}) | {
    "reshape",
    "squeeze",
    "transpose",
}


def idle_results(jaxpr: Jaxpr, given: Sequence[Idle]) -> list[Idle]:
    """The results of a body."""
    known: dict[Any, Idle] = dict(zip(jaxpr.invars, given, strict=True))

    def read(atom: Any) -> Idle:
        if isinstance(atom, Var):
            return known.get(atom)
        is_false = atom.aval.dtype == np.bool_ and not np.any(atom.val)
        return OFF if is_false else None

    for eqn in jaxpr.eqns:
        outs = _equation(eqn, [read(v) for v in eqn.invars])
        known.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _equation(eqn: Equation, values: list[Idle]) -> Sequence[Idle]:
    name, params = eqn.primitive.name, eqn.params
    first = values[0] if values else None
    if name == "and" and eqn.outvars[0].aval.dtype == np.bool_ and OFF in values:
        return [OFF]
    if name == "select_n" and first == OFF:
        return [PUT_BACK if values[1] is None else values[1]]
    if name == "select_n" and len(set(values[1:])) == 1:
        return [values[1]]
    if name in VIEWS and first in (OFF, PUT_BACK):
        return [first]
    if record_of(eqn).kind == "update" and PUT_BACK in values[1:] and _puts_back(eqn):
        return [first]
    if name == "while":
        nc, nb = params["cond_nconsts"], params["body_nconsts"]
        body = params["body_jaxpr"].jaxpr
        return _repeated(body, values[nc : nc + nb], values[nc + nb :])
    if name == "cond":
        ways = [idle_results(b.jaxpr, values[1:]) for b in params["branches"]]
        return [w[0] if len(set(w)) == 1 else None for w in zip(*ways, strict=True)]
    return [None] * len(eqn.outvars)


def _puts_back(eqn: Equation) -> bool:
    return SETTER in compat.scope_of(eqn)


def _repeated(
    body: Jaxpr, consts: Sequence[Idle], carry: Sequence[Idle]
) -> Sequence[Idle]:
    """What the carries of an inner loop are, after any number of rounds."""
    while True:
        after = idle_results(body, [*consts, *carry])
        same = [
            old if old == new else None for old, new in zip(carry, after, strict=True)
        ]
        if same == list(carry):
            return same
        carry = same
