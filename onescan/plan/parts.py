"""parts: what a body computes for all lanes alike, and what for each lane.

The first part runs once a step, the second once for each block of lanes; the
second may read what the first computed, never the other way round, because a
value that depends on a lane differs from lane to lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Var

from onescan.loop import Equation
from onescan.plan.plan import Plan


@dataclass(frozen=True)
class Part:
    """Some equations of a body: what they read and what others need of them."""

    members: set[Any]  # the values that belong to this part
    invars: list[Var]
    eqns: Sequence[Equation]
    outvars: list[Var]


def parts(plan: Plan) -> tuple[Part, Part]:
    """The common part and the laned part of a loop's body."""
    jaxpr = plan.loop.body.jaxpr
    members = _laned(plan)
    common = [eqn for eqn in jaxpr.eqns if members.isdisjoint(eqn.outvars)]
    laned = [eqn for eqn in jaxpr.eqns if not members.isdisjoint(eqn.outvars)]
    outs = list(dict.fromkeys(v for v in jaxpr.outvars if isinstance(v, Var)))
    asked = (_read(laned) | set(outs)) - members
    made = [v for eqn in common for v in eqn.outvars]
    # carries read by the lanes too are results, so that nobody overwrites them
    kept = [v for v in [*jaxpr.invars, *made] if v in asked]
    first = Part(
        {*jaxpr.invars, *outs, *made} - members,
        _inputs(jaxpr.invars, common, kept),
        common,
        kept,
    )
    results = [v for v in outs if v in members]
    known = [*jaxpr.invars, *made]
    second = Part(members, _inputs(known, laned, results), laned, results)
    return first, second


def _laned(plan: Plan) -> set[Any]:
    """The values of the laned part.

    Those that lie along the vector lane, and what an equation that touches one
    gives besides (the counter of an inner loop, say): it could be computed once,
    but not apart from them.
    """
    loop, jaxpr = plan.loop, plan.loop.body.jaxpr
    made = [v for eqn in jaxpr.eqns for v in eqn.outvars]
    values = [*jaxpr.invars, *jaxpr.outvars, *made]
    members = {v for v in values if isinstance(v, Var) and plan.is_laned(v)}
    carry = jaxpr.invars[loop.num_consts : loop.num_consts + loop.num_carry]
    size = -1
    while size != len(members):
        size = len(members)
        for eqn in jaxpr.eqns:
            inputs = (v for v in eqn.invars if isinstance(v, Var))
            if not members.isdisjoint([*inputs, *eqn.outvars]):
                members.update(eqn.outvars)
        for before, after in zip(carry, jaxpr.outvars, strict=False):
            if isinstance(after, Var) and after in members:
                members.add(before)
            elif before in members and isinstance(after, Var):
                members.add(after)
    return members


def _read(eqns: Sequence[Equation]) -> set[Var]:
    return {v for eqn in eqns for v in eqn.invars if isinstance(v, Var)}


def _inputs(known: list[Var], eqns: Sequence[Equation], outs: list[Var]) -> list[Var]:
    """Those of the known values that a part reads or passes on."""
    wanted = _read(eqns) | set(outs)
    return [v for v in known if v in wanted]
