"""Axes along which all work is independent, but for sums: those of data parallelism.

A training step lies along its batch, all but the sums that are its gradients.  Blocks
that have a part of the batch each can do such a step side by side, and meet where they
add up what each of them has (an all-reduce).  What does not lie along the axis, the
parameters and their update, each of them does for itself.
"""

from __future__ import annotations

from typing import Any

from onescan.loop import Equation, Loop
from onescan.plan.lanes import lane_axes
from onescan.plan.merged import Axis, Merged, side_by_side, single
from onescan.plan.plan import Plan
from onescan.plan.work import equations
from onescan.primitives import record_of
from onescan.primitives.axes import Axes


class _Parallel(Axes):
    """Axes that may be summed over, by equations of the loop's body itself."""

    def combine(self, *dimensions: tuple[Any, int]) -> None:
        if self.depth > 1:
            super().combine(*dimensions)
            return
        (x, i), *others = dimensions
        for y, j in others:  # what is contracted walks together
            self.join(x, i, y, j)


def parallel_axes(loop: Loop) -> list[Merged]:
    """The axes of a loop along which only sums meet, and at least one does."""
    jaxpr = loop.body.jaxpr
    if any(record_of(eqn).kind == "across" for eqn in equations(jaxpr)):
        return []
    full = [single(axis) for axis in lane_axes(loop, _Parallel) if _is_full(axis)]
    found = side_by_side(full)
    return [axis for axis in found if any(meets(eqn, axis) for eqn in jaxpr.eqns)]


def _is_full(axis: Axis) -> bool:
    return all(0 not in var.aval.shape for var in axis)


def meets(eqn: Equation, axis: Merged) -> bool:
    """Whether an equation sums over an axis."""
    reads, gives = any(map(axis.holds, eqn.invars)), any(map(axis.holds, eqn.outvars))
    return reads and not gives and record_of(eqn).kind in ("reduction", "product")


def meetings(plan: Plan) -> int:
    """The sums of a step over the axis that the blocks of a plan share."""
    shared: Axis = {
        var: tuple(dim for dim, lane in dims.items() if lane is plan.parallel)
        for var, dims in plan.lane_of.items()
        if plan.parallel in dims.values()
    }
    return sum(meets(eqn, single(shared)) for eqn in plan.loop.body.jaxpr.eqns)
