"""Whether the blocks of a team should have a part each of an axis, and of which one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onescan.loop import Loop
from onescan.plan.data_parallel import meets, parallel_axes
from onescan.plan.merged import Merged
from onescan.plan.work import work_of

#: blocks of a team
TEAMS = (8, 4, 2)
#: operations of a step that a block does while blocks meet once, where they are all
#: that is known of it: many of the kind that tanh is made of, and where they are few
MEETING, EASILY = 40_000, 5_000
#: the part of a step that must be left
LESS = 0.7


@dataclass(frozen=True)
class SharedOut:
    """An axis, and the blocks that have a part of it each."""

    axis: Merged
    team: int
    operations: float  # of a step that are left for one block
    sums: int  # in which they meet


def shared_out(
    loop: Loop, operations: Mapping[int, float], most: int, easily: bool
) -> SharedOut | None:
    """The axis that at most so many blocks share, if that takes much less time.

    `operations` are those of a tile, by the `id` of their equation.  With `easily`,
    somebody looks at the kernel that comes of it, and decides.
    """
    total = sum(operations.values())
    meeting = EASILY if easily else MEETING
    if loop.is_while or total * (1 - LESS) < meeting or most < min(TEAMS):
        return None
    found = []
    for axis in parallel_axes(loop):
        along = sum(
            operations.get(id(work.eqn), 0.0)
            for work in work_of(loop.body.jaxpr)
            if any(map(axis.holds, [*work.eqn.outvars, *work.eqn.invars]))
        )
        sums = sum(meets(eqn, axis) for eqn in loop.body.jaxpr.eqns)
        for team in TEAMS:
            if team <= most and axis.size % team == 0:
                left = total - along * (1 - 1 / team)
                found.append(SharedOut(axis, team, left, sums))
    cost = lambda way: way.operations + way.sums * meeting
    best = min(found, key=cost, default=None)
    return best if best is not None and cost(best) <= LESS * total else None
