"""Equations of a body, evaluated outside of it: once, or for all steps at once.

A value of the body is *fixed* when it is computed from constants alone, *free*
when it needs this step's x too, and *bound* when it needs the carry, or when one
step at a time is less work than all together (`is_movable`).  Free values of all
steps can be computed together; so can whatever is computed from bound
values, once the loop has left those of all steps behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
from jax.extend.core import JaxprEqn, Var
from jax.extend.core import Literal as Constant

from onescan import compat
from onescan.passes.split import Parts, slice_of, variables
from onescan.passes.worth import is_movable

Kind = Literal["fixed", "free", "bound"]
KINDS: tuple[Kind, ...] = ("fixed", "free", "bound")  # by what they may need


def kinds_of(parts: Parts) -> dict[Var, Kind]:
    """What every value of a body depends on."""
    kinds: dict[Var, Kind] = dict.fromkeys(parts.consts, "fixed")
    kinds.update(dict.fromkeys(parts.carry, "bound"))
    kinds.update(dict.fromkeys(parts.xs, "free"))
    for eqn in parts.eqns:
        needs = (KINDS.index(kinds[v]) for v in variables(eqn.invars))
        kind = KINDS[max(needs, default=0)]
        if kind == "free" and not is_movable(eqn):
            kind = "bound"
        kinds.update(dict.fromkeys(eqn.outvars, kind))
    return kinds


def evaluate(
    eqns: Sequence[JaxprEqn], env: Mapping[Var, Any], wanted: Sequence[Any]
) -> list[Any]:
    """The wanted values, by the equations among `eqns` that lead to them."""
    env = dict(env)

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Constant) else env[atom]

    for eqn in slice_of(eqns, wanted, env):
        values = compat.bind(eqn, [read(v) for v in eqn.invars])
        env.update(zip(eqn.outvars, values, strict=True))
    return [read(v) for v in wanted]


def over_time(
    eqns: Sequence[JaxprEqn],
    fixed: Mapping[Var, Any],
    stacked: Mapping[Var, Any],
    wanted: Sequence[Any],
    length: int,
) -> list[Any]:
    """The wanted values of all steps, stacked.

    `jax.vmap` is the meaning.  Its rule for a product of a stacked and a fixed
    operand makes time one more row index, so all steps are one matrix product.
    """
    if not wanted:
        return []

    def step(values: Mapping[Var, Any]) -> list[Any]:
        return evaluate(eqns, {**fixed, **values}, wanted)

    used = used_inputs(eqns, wanted, [*fixed, *stacked])
    by_place = [v for v in stacked if v in used]
    mapped = jax.vmap(
        lambda *values: step(dict(zip(by_place, values, strict=True))),
        axis_size=length,
    )
    return list(mapped(*(stacked[v] for v in by_place)))


def used_inputs(
    eqns: Sequence[JaxprEqn], wanted: Sequence[Any], known: Sequence[Var]
) -> set[Var]:
    """Which of the known variables lead to the wanted ones."""
    found = set(variables(wanted))
    for eqn in slice_of(eqns, wanted, known):
        found.update(variables(eqn.invars))
    return found.intersection(known)
