"""How a loop lies over a GPU: a thread for each lane, or a block for each tile.

A thread that has a lane for itself needs nobody: no barriers, and its values stay in
registers.  That is best while a lane's step is short.  A longer one is spread over
the threads of a block, which meet at a barrier after each operation; products with
weights that stay the same want as many threads as keep all weights in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

from jax.extend.core import Var

from onescan.loop import Loop
from onescan.plan.halo import Rows, rows_of
from onescan.plan.lanes import lane_axes
from onescan.plan.layout import assign, finished, power_below
from onescan.plan.merged import Merged, merged, share, without_repeats
from onescan.plan.plan import Grid, Lane, Plan
from onescan.plan.stencils import is_stencil
from onescan.plan.work import Work, equations, step_of
from onescan.targets.nvidia.block_plan import CLUSTERS, ROWS, WARP, block_plan
from onescan.targets.nvidia.machine import Chip
from onescan.tune.gpu import TURN

#: threads of a block where each has its own lane
MOST = 256
#: operations of a lane's step that one thread does alone, with few lanes and with
#: more than fill the chip, and numbers that its widest value may have
ALONE, ALONE_OF_MANY, WIDEST = 1200, 3000, 64
#: how many times the operations of one thread the threads of a block do in its time
TOGETHER = 8
#: axes of which every choice is looked at
TRIED = 6
#: the work of a step, as a multiple of what it needs, that all lanes may do together
REPEATED = 4.0
#: operations of a step of a grid that one block of a team should have, positions of it
#: that a thread computes, and the part of its shared memory that the grid may take
SHARE, POSITIONS, ROOM = 30_000, 4, 0.95


def choose(
    loop: Loop,
    chip: Chip,
    rows: int = ROWS,
    alone: bool = True,
    easily: bool = False,
) -> Plan:
    """Lay a loop over the chip, with at most so many lanes for a block.

    A thread has a lane for itself where a step is short, unless not even `alone`.
    Blocks share an axis where a step is long, or `easily`.
    """
    works = step_of(loop)
    # the axis that lies innermost in most values is the one neighbours differ in
    found = merged(lane_axes(loop), loop)
    found = sorted(found, key=lambda axis: _innermost(axis, loop))
    cut = without_repeats(works, [], found, REPEATED)
    axes = [axis for axis in found if axis in cut]
    if alone and (lanes := _alone(loop, works, found, axes, chip)) is not None:
        return _thread_plan(loop, lanes, chip)
    if alone and (plan := _rows_plan(loop, works, axes, chip)) is not None:
        return plan
    others = [axis for axis in found if axis not in cut]
    return block_plan(loop, works, axes, others, chip, rows, easily)


def _lanes(axes: Sequence[Merged]) -> int:
    return prod(axis.size for axis in axes)


def _is_short(loop: Loop, works: list[Work], axes: list[Merged], chip: Chip) -> bool:
    """Whether a step of a lane is little enough for one thread."""
    many = _lanes(axes) >= TURN * chip.cores
    most = ALONE_OF_MANY if many else ALONE
    return _operations(works, axes) <= most and _widest(loop, axes) <= WIDEST


def _alone(
    loop: Loop, works: list[Work], axes: list[Merged], cut: list[Merged], chip: Chip
) -> list[Merged] | None:
    """The axes along which threads have lanes for themselves, if steps are short.

    Without repeating much they are those of `cut`.
    """
    short = _is_short(loop, works, cut, chip)
    soonest = _soonest(works, axes, chip)
    if _is_short(loop, works, soonest, chip) and _can_hold_common(loop, soonest):
        least = 1 if short else TOGETHER
        if least * _operations(works, soonest) <= _operations(works, cut):
            return soonest
    return cut if short else None


def _soonest(works: list[Work], axes: list[Merged], chip: Chip) -> list[Merged]:
    """The axes along which threads have lanes, so that all are done soonest.

    What lanes have in common every thread does for itself, which costs nothing while
    the chip has a thread for each: the covariances of a Kalman filter, which many
    sequences share.
    """

    def taken(some: tuple[Merged, ...]) -> float:
        rounds = max(1.0, _lanes(some) / (TURN * chip.cores))
        return rounds * _operations(works, some)

    most = sorted(axes, key=lambda axis: -share(works, axis))[:TRIED]
    axes = [axis for axis in axes if axis in most]
    counts = range(len(axes), -1, -1)  # of equals the one with most lanes
    return list(min((s for n in counts for s in combinations(axes, n)), key=taken))


def _can_hold_common(loop: Loop, axes: list[Merged]) -> bool:
    """Whether a thread has room for what all lanes have in common."""
    values = [v for eqn in equations(loop.body.jaxpr) for v in eqn.outvars]
    common = [v for v in values if not all(axis.holds(v) for axis in axes)]
    return _numbers(common, axes) <= WIDEST


def _operations(works: list[Work], axes: Sequence[Merged]) -> float:
    """Operations of one lane in one step."""
    total = 0.0
    for work in works:
        held = [*work.eqn.outvars, *work.eqn.invars]
        lanes = prod(a.size for a in axes if any(a.holds(v) for v in held))
        total += work.operations / lanes
    return total


def _widest(loop: Loop, axes: list[Merged]) -> int:
    """Numbers of one lane in the widest value, but for those changed in place."""
    values = [
        v
        for eqn in equations(loop.body.jaxpr)
        if not eqn.primitive.name.startswith(("dynamic_update_slice", "scatter"))
        for v in eqn.outvars
    ]
    return _numbers(values, axes)


def _numbers(values: list[Any], axes: list[Merged]) -> int:
    """Numbers of one lane in the widest of some values."""
    sizes = (
        prod(v.aval.shape) // prod(a.size for a in axes if a.holds(v)) for v in values
    )
    return max(sizes, default=1)


def _thread_plan(loop: Loop, axes: list[Merged], chip: Chip) -> Plan:
    lanes: list[Lane] = []
    lane_of: dict[Var, dict[int, Lane]] = {}
    for axis in axes:
        assign(lane_of, lanes, axis, Lane(axis.size, 1, False))
    threads = _rounded(_lanes(axes) // chip.cores, WARP)
    grid = Grid(max(WARP, min(MOST, threads)), together=False)
    return finished(loop, lanes, lane_of, 1, False, grid)


def _rows_plan(
    loop: Loop, works: list[Work], axes: list[Merged], chip: Chip
) -> Plan | None:
    """A team for each grid whose positions look at their neighbours, if that pays."""
    if chip.capability < CLUSTERS or not is_stencil(loop, 1, axes):
        return None
    rows = rows_of(loop, axes)
    if rows is None:
        return None
    tiles, operations = _lanes(axes), _operations(works, axes)
    wanted = power_below(int(min(operations / SHARE, chip.cores / tiles)))
    fitting = [n for n in (1, 2, 4, 8) if _may_share(rows, n, chip)]
    if not fitting:
        return None
    team = max((n for n in fitting if n <= wanted), default=fitting[0])
    lanes: list[Lane] = []
    lane_of: dict[Var, dict[int, Lane]] = {}
    for axis in axes:
        assign(lane_of, lanes, axis, Lane(axis.size, 1, False))
    each = prod(rows.shape) // team
    threads = min(1024, max(128, power_below(each // POSITIONS)))
    grid = Grid(threads, together=True, team=team)
    return replace(finished(loop, lanes, lane_of, 1, False, grid), rows=rows)


def _may_share(rows: Rows, team: int, chip: Chip) -> bool:
    """Whether so many blocks can hold a grid, each with equal shares and halos."""
    each = rows.count // team
    here = each + 2 * rows.halo if team > 1 else each
    whole = rows.count % team == 0 and rows.halo <= each and here <= rows.count
    return whole and rows.held // rows.count * here <= chip.shared * ROOM


def _innermost(axis: Any, loop: Loop) -> int:
    """How many numbers of the xs and ys lie along an axis as their last dimension."""
    jaxpr = loop.body.jaxpr
    return sum(
        prod(v.aval.shape)
        for v in [*jaxpr.invars, *jaxpr.outvars]
        if axis.holds(v) and axis.parts[-1][v][0] == len(v.aval.shape) - 1
    )


def _rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit
