"""Lanes: the axes along which a body's work is independent.

Every dimension of every value is a node; an equation joins the nodes that walk
together (the dimensions of an elementwise operation, the batch dimensions of a
product, a carry going in and coming out) and strikes those it mixes (what a
reduction, contraction, slice, sort or gather touches).  A joined set that was
never struck is a lane axis: position i along it depends on nothing but position
i along it, at every step, so each position can run through the whole loop by
itself.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from onescan.loop import Loop
from onescan.plan.across import strike_told_apart
from onescan.primitives import named
from onescan.primitives.axes import Axes, Node


def lane_axes(loop: Loop, kind: type[Axes] = Axes) -> list[dict[Any, tuple[int, ...]]]:
    """The lane axes of a loop, each as the dimensions that lie along it.

    Axes of size 1 are left out, and those of values with no elements. A value may
    have two dimensions along one axis (an outer sum of a vector with itself, before
    its diagonal is taken); such an axis is no lane axis.  Another `kind` may take fewer
    positions to meet.
    """
    axes = kind(lambda name: named(name).axes)
    jaxpr = loop.body.jaxpr
    axes.visit(jaxpr)
    carry_in = jaxpr.invars[loop.num_consts : loop.num_consts + loop.num_carry]
    for before, after in zip(carry_in, jaxpr.outvars[: loop.num_carry], strict=True):
        axes.join_all(before, after)
    strike_told_apart(axes, jaxpr)
    found: dict[Node, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    for var, dim in list(axes.parent):
        root = axes.find((var, dim))
        if var.aval.shape[dim] > 1:
            found[root][var].append(dim)
    struck = {axes.find(node) for node in axes.struck}
    return [
        {var: tuple(dims) for var, dims in members.items()}
        for root, members in found.items()
        if root not in struck
        and all(len(dims) == 1 for dims in members.values())
        and any(0 not in var.aval.shape for var in members)
    ]
