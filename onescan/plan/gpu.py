"""How a loop lies over a GPU: a thread for each lane, or a block for each tile."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from jax.extend.core import Var

from onescan.loop import Loop
from onescan.plan.choose import Merged, assign, finished, merged
from onescan.plan.lanes import lane_axes
from onescan.plan.plan import Grid, Lane, Plan
from onescan.plan.work import Work, equations, work_of

#: threads of a block: a warp where there are few lanes, so that they spread out
FEWEST, MOST = 32, 256
#: operations of a lane in one step up to which one thread does them, and numbers of
#: its widest value
ALONE, WIDEST = 2500, 64
#: KiB that a block can have for itself, by compute capability
SHARED = {70: 96, 75: 64, 80: 163, 87: 163, 90: 227, 100: 227, 101: 227, 103: 227}


@dataclass(frozen=True)
class Chip:
    """What a plan must know of the GPU."""

    capability: int  # 90 for 9.0
    cores: int  # multiprocessors

    @property
    def shared(self) -> int:
        """Bytes of memory that the threads of a block can share."""
        return SHARED.get(self.capability, 99) << 10


def choose(loop: Loop, chip: Chip) -> Plan:
    """Lay a loop over the chip."""
    axes = merged(lane_axes(loop), loop)
    # the axis that lies innermost in most values is the one neighbours differ in
    axes = sorted(axes, key=lambda axis: _innermost(axis, loop))
    works = list(work_of(loop.body.jaxpr))
    if FORCE == "thread" or (FORCE is None and _alone(loop, works, axes)):
        return _thread_plan(loop, axes, chip)
    return _block_plan(loop, works, axes, chip)

FORCE = None
THREADS = None
ROWS = None

def _alone(loop: Loop, works: list[Work], axes: list[Merged]) -> bool:
    """Whether a lane is little enough for one thread."""
    return _operations(works, axes) <= ALONE and _widest(loop, axes) <= WIDEST


def _operations(works: list[Work], axes: list[Merged]) -> float:
    """Operations of one lane in one step."""
    total = 0.0
    for work in works:
        held = [*work.eqn.outvars, *work.eqn.invars]
        lanes = prod(a.size for a in axes if any(a.holds(v) for v in held))
        total += work.operations / lanes
    return total


def _widest(loop: Loop, axes: list[Merged]) -> int:
    """Numbers of one lane in the widest value of the body."""
    jaxpr = loop.body.jaxpr
    made = [v for eqn in equations(jaxpr) for v in eqn.outvars]
    carries = jaxpr.invars[loop.num_consts : loop.num_consts + loop.num_carry]
    return max(
        (
            prod(v.aval.shape) // prod(a.size for a in axes if a.holds(v))
            for v in [*carries, *made]
        ),
        default=1,
    )


def _thread_plan(loop: Loop, axes: list[Merged], chip: Chip) -> Plan:
    lanes: list[Lane] = []
    lane_of: dict[Var, dict[int, Lane]] = {}
    for axis in axes:
        assign(lane_of, lanes, axis, Lane(axis.size, 1, False))
    count = prod(axis.size for axis in axes)
    threads = max(FEWEST, min(MOST, _rounded(count // chip.cores, FEWEST)))
    return finished(loop, lanes, lane_of, 1, False, Grid(threads, together=False))


def _block_plan(loop: Loop, works: list[Work], axes: list[Merged], chip: Chip) -> Plan:
    lanes: list[Lane] = []
    lane_of: dict[Var, dict[int, Lane]] = {}
    rows = ROWS or 1
    for k, axis in enumerate(axes):
        extent = rows if k == len(axes) - 1 and len(axis.parts) == 1 else 1
        assign(lane_of, lanes, axis, Lane(axis.size, min(extent, axis.size), False))
    return finished(loop, lanes, lane_of, 1, False, Grid(THREADS or 256, together=True))


def _innermost(axis: Any, loop: Loop) -> int:
    """How many numbers of the xs and ys lie along an axis as their last dimension."""
    jaxpr = loop.body.jaxpr
    streams = [*jaxpr.invars, *jaxpr.outvars]
    return sum(
        prod(v.aval.shape)
        for v in streams
        if axis.holds(v) and axis.parts[-1][v][0] == len(v.aval.shape) - 1
    )


def _rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit
