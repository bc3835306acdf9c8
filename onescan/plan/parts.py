"""parts: what a body computes for all lanes alike, and what for each lane.

The first part runs once a step, the second once for each block of lanes; the
second may read what the first computed, never the other way round, because a
value that depends on a lane differs from lane to lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jax.extend.core import JaxprEqn, Var

from onescan.plan.plan import Plan


@dataclass(frozen=True)
class Part:
    """Some equations of a body: what they read and what others need of them."""

    laned: bool
    invars: list[Var]
    eqns: list[JaxprEqn]
    outvars: list[Var]

    def holds(self, plan: Plan, var: Any) -> bool:
        """Whether an output of the body belongs to this part."""
        return plan.is_laned(var) == self.laned


def parts(plan: Plan) -> tuple[Part, Part]:
    """The common part and the laned part of a loop's body."""
    jaxpr = plan.loop.body.jaxpr
    common = [eqn for eqn in jaxpr.eqns if not _is_laned(plan, eqn)]
    laned = [eqn for eqn in jaxpr.eqns if _is_laned(plan, eqn)]
    outs = list(dict.fromkeys(v for v in jaxpr.outvars if isinstance(v, Var)))
    asked = _read(laned) | {v for v in outs if not plan.is_laned(v)}
    made = [v for eqn in common for v in eqn.outvars]
    # carries read by the lanes too are results, so that nobody overwrites them
    kept = [v for v in [*jaxpr.invars, *made] if v in asked and not plan.is_laned(v)]
    first = Part(False, _inputs(jaxpr.invars, common, kept), common, kept)
    results = [v for v in outs if plan.is_laned(v)]
    second = Part(True, _inputs([*jaxpr.invars, *made], laned, results), laned, results)
    return first, second


def _is_laned(plan: Plan, eqn: JaxprEqn) -> bool:
    return any(plan.is_laned(v) for v in [*eqn.invars, *eqn.outvars])


def _read(eqns: list[JaxprEqn]) -> set[Var]:
    return {v for eqn in eqns for v in eqn.invars if isinstance(v, Var)}


def _inputs(known: list[Var], eqns: list[JaxprEqn], outs: list[Var]) -> list[Var]:
    """Those of the known values that a part reads or passes on."""
    wanted = _read(eqns) | set(outs)
    return [v for v in known if v in wanted]
