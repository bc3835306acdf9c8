"""What a user can do to make a loop faster, where something can be done."""

from __future__ import annotations

import re
from math import prod

from onescan import compat
from onescan.explain.decide import Decision, lanes_of, meant
from onescan.plan.work import work_of
from onescan.reports.advice import advice

#: operations of a step from which one lane keeps a core busy
BUSY = 2_000
#: operations of one line that are worth naming
LARGEST_SHARE = 0.5


def advice_for(decision: Decision) -> list[str]:
    """Sentences, the most useful first; none where nothing is to be gained."""
    if decision.reason is not None:
        return _on_xla(decision)
    found: list[str] = []
    plan = decision.plan
    if plan is None:
        return found
    lanes = prod(lanes_of(plan.loop))
    work = sum(w.operations for w in work_of(decision.core.body.jaxpr))
    if lanes == 1 and work < BUSY:
        what = meant(decision.platform).filled_by_lanes
        found.append(
            "A step does little and has no independent lanes, so it waits for "
            "itself. If you have many such loops, run them together with `jax.vmap`: "
            f"they fill {what} and cost little more than one."
        )
    heaviest = max(
        work_of(decision.core.body.jaxpr), key=lambda w: w.operations, default=None
    )
    if heaviest and work > BUSY and heaviest.operations > LARGEST_SHARE * work:
        name = compat.expression_of(heaviest.eqn)
        code, _, place = name.rpartition(", ")
        found.append(
            f"{f'`{code}` at {place}' if code else place} is "
            f"{heaviest.operations / work:.0%} of what each step still computes: "
            "speed it up first."
        )
    return found


def _on_xla(decision: Decision) -> list[str]:
    """What keeps the loop on XLA, and what the user can do about it."""
    reason = decision.reason or ""
    operation = re.match(r"`[^`]+` at \S+", reason)
    keeps = f"{operation[0]} keeps this loop on XLA. " if operation else ""
    what = advice(reason)
    return [f"{keeps}{what or ''}".strip()] if keeps or what else []
