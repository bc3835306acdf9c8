"""selected: branches that cost less than to branch, where many threads share a step.

Threads that share a step wait for each other before a branch and behind it, and what
its branches read and give goes through memory.  XLA computes small branches all and
selects; so does `inline` with those that are `cheap`.  Nothing in them can fail or be
seen from outside, they leave the loop where they need no carry, and their axes are
divided like any other.  One core branches faster than it computes both: it guesses
which way to go.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax.extend.core import ClosedJaxpr

from onescan.loop import Equation
from onescan.plan.work import work_of
from onescan.primitives import record_of
from onescan.primitives.record import results

#: operations of all branches for each number that they give, like tanh and a few more
EACH = 24
#: more than that many are not chosen from one by one
BRANCHES = 4


def cheap(eqn: Equation, branches: Sequence[ClosedJaxpr], platform: str) -> bool:
    """Whether to compute all of these flat branches of a `cond` and select."""
    if platform == "cpu" or eqn.effects or not 1 < len(branches) <= BRANCHES:
        return False
    inside = [inner for branch in branches for inner in branch.jaxpr.eqns]
    if any(inner.effects or not record_of(inner).alone for inner in inside):
        return False
    done = sum(work.operations for b in branches for work in work_of(b.jaxpr))
    return done <= EACH * results(eqn)
