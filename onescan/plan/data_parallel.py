"""Axes along which all work is independent, but for sums: those of data parallelism.

A training step lies along its batch, all but the sums that are its gradients.  Blocks
that have a part of the batch each can do such a step side by side, and meet where they
add up what each of them has (an all-reduce).  What does not lie along the axis, the
parameters and their update, each of them does for itself.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from jax.extend.core import Var

from onescan.loop import Atom, Equation, Loop
from onescan.plan.merged import Axis
from onescan.plan.plan import Plan
from onescan.plan.work import equations
from onescan.primitives import named, record_of
from onescan.primitives.axes import Axes, Node


class _Parallel(Axes):
    """Axes that may be summed over, by equations of the loop's body itself."""

    def combine(self, *dimensions: tuple[Any, int]) -> None:
        if self.depth > 1:
            super().combine(*dimensions)
            return
        (x, i), *others = dimensions
        for y, j in others:  # what is contracted walks together
            self.join(x, i, y, j)


def parallel_axes(loop: Loop) -> list[Axis]:
    """The axes of a loop along which only sums meet, and at least one does."""
    jaxpr = loop.body.jaxpr
    if any(record_of(eqn).kind == "across" for eqn in equations(jaxpr)):
        return []
    axes = _Parallel(lambda name: named(name).axes)
    axes.visit(jaxpr)
    carry_in = jaxpr.invars[loop.num_consts : loop.num_consts + loop.num_carry]
    for before, after in zip(carry_in, jaxpr.outvars[: loop.num_carry], strict=True):
        axes.join_all(before, after)
    struck = {axes.find(node) for node in axes.struck}
    found: dict[Node, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    for var, dim in list(axes.parent):
        if (root := axes.find((var, dim))) not in struck and var.aval.shape[dim] > 1:
            found[root][var].append(dim)
    several = [
        {var: tuple(dims) for var, dims in members.items()}
        for members in found.values()
        if all(len(dims) == 1 for dims in members.values())
        and all(0 not in var.aval.shape for var in members)
    ]
    return [axis for axis in several if any(meets(eqn, axis) for eqn in jaxpr.eqns)]


def meets(eqn: Equation, axis: Axis) -> bool:
    """Whether an equation sums over an axis."""
    reads = any(lies_along(v, axis) for v in eqn.invars)
    gives = any(lies_along(v, axis) for v in eqn.outvars)
    return reads and not gives and record_of(eqn).kind in ("reduction", "product")


def meetings(plan: Plan) -> int:
    """The sums of a step over the axis that the blocks of a plan share."""
    axis = {
        var: tuple(dim for dim, lane in dims.items() if lane is plan.parallel)
        for var, dims in plan.lane_of.items()
        if plan.parallel in dims.values()
    }
    return sum(meets(eqn, axis) for eqn in plan.loop.body.jaxpr.eqns)


def lies_along(var: Atom, axis: Axis) -> bool:
    return isinstance(var, Var) and var in axis
