"""How long a kernel may run before it looks whether the user wants it to end.

A look is a load and a branch.  Loops that are over soon have none, and those that take
long one in so many rounds that it costs nothing.
"""

from __future__ import annotations

from math import prod
from typing import Any

from onescan.loop import Equation
from onescan.plan.plan import Plan
from onescan.plan.work import equations, work_of

#: operations that are over before anybody could press Ctrl-C, and between two looks
#: (10 ns each in slow bodies; `tests/targets/cpu/test_interrupts.py` waits for the end)
SHORT, BETWEEN = 1e7, 1e5
#: operations that a round takes beside its own
ROUND = 4


def rounds_between(rounds: int, operations: float) -> int:
    """Rounds of a loop between two looks, 0 where none is needed."""
    each = operations + ROUND
    return max(1, int(BETWEEN / each)) if rounds * each > SHORT else 0


def operations_in(plan: Plan, jaxpr: Any) -> float:
    """What a body computes in one tile: its part, and what all tiles have in common."""
    return sum(w.operations / _tiles(plan, w.eqn) for w in work_of(jaxpr))


def _tiles(plan: Plan, eqn: Equation) -> int:
    """The tiles that an equation is done in, each a part of it."""
    along = {lane for v in (*eqn.invars, *eqn.outvars) for lane in plan.local_lanes(v)}
    return max(prod(lane.tiles for lane in along if lane), 1)


def looks(plan: Plan) -> bool:
    """Whether the kernel of a loop looks: it takes long, or who knows how long."""
    body = plan.loop.body.jaxpr
    each = operations_in(plan, body) + ROUND
    open_end = any(eqn.primitive.name == "while" for eqn in equations(body))
    return open_end or each * plan.loop.length * plan.tiles > SHORT


def tiles_between(plan: Plan) -> int:
    """Tiles between two looks."""
    if not looks(plan):
        return 0
    each = (operations_in(plan, plan.loop.body.jaxpr) + ROUND) * plan.loop.length
    return max(1, int(BETWEEN / each))
