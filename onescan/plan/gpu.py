"""How a loop lies over a GPU: a thread for each lane, or a block for each tile."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from jax.extend.core import Var

from onescan.loop import Loop
from onescan.plan.choose import assign, finished, merged
from onescan.plan.lanes import lane_axes
from onescan.plan.plan import Grid, Lane, Plan

#: threads of a block: a warp where there are few lanes, so that they spread out
FEWEST, MOST = 32, 256


@dataclass(frozen=True)
class Chip:
    """What a plan must know of the GPU."""

    capability: int  # 90 for 9.0
    cores: int  # multiprocessors


def choose(loop: Loop, chip: Chip) -> Plan:
    """Lay a loop over the chip."""
    axes = merged(lane_axes(loop), loop)
    lanes: list[Lane] = []
    lane_of: dict[Var, dict[int, Lane]] = {}
    # the axis that lies innermost in most values is the one neighbours differ in
    for axis in sorted(axes, key=lambda axis: _innermost(axis, loop)):
        assign(lane_of, lanes, axis, Lane(axis.size, 1, False))
    count = prod(axis.size for axis in axes)
    threads = max(FEWEST, min(MOST, _rounded(count // chip.cores, FEWEST)))
    return finished(loop, lanes, lane_of, 1, False, Grid(threads, together=False))


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
