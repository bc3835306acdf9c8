"""From lane axes to a plan: which lane each dimension lies along, and the layouts."""

from __future__ import annotations

from math import prod
from typing import Any

from jax.extend.core import Var

from onescan.loop import Atom, Loop
from onescan.plan.batch_major import is_batch_major, lanes_first
from onescan.plan.merged import Merged
from onescan.plan.plan import INTERLEAVED, Grid, Lane, Plan


def _carries(loop: Loop) -> list[Any]:
    invars = loop.body.jaxpr.invars
    return invars[loop.num_consts : loop.num_consts + loop.num_carry]


def assign(
    lane_of: dict[Var, dict[int, Lane]], lanes: list[Lane], group: Merged, lane: Lane
) -> None:
    """Lay a merged axis along one lane: its outer dimensions are folded in."""
    lanes.append(lane)
    *outer, last = group.parts
    for part in outer:
        folded = Lane(1, 1, False)
        lanes.append(folded)
        for var, (dim,) in part.items():
            lane_of.setdefault(var, {})[dim] = folded
    for var, (dim,) in last.items():
        lane_of.setdefault(var, {})[dim] = lane


def finished(
    loop: Loop,
    lanes: list[Lane],
    lane_of: dict[Var, dict[int, Lane]],
    width: int,
    threads: bool,
    grid: Grid | None = None,
    features: frozenset[str] = frozenset(),
    common_width: int = 1,
) -> Plan:
    """The plan, with the layouts its buffers are wanted in."""
    plan = Plan(loop, tuple(lanes), lane_of, width, grid=grid, features=features)
    jaxpr = loop.body.jaxpr
    fixed = loop.num_consts + loop.num_carry
    results = [*_carries(loop), *jaxpr.outvars[loop.num_carry :]]
    layouts = [
        _layout(plan, var, stacked=i >= fixed) for i, var in enumerate(jaxpr.invars)
    ]
    layouts += [
        _layout(plan, var, stacked=i >= loop.num_carry) for i, var in enumerate(results)
    ]
    several = plan.tiles > 1
    return Plan(
        loop,
        tuple(lanes),
        lane_of,
        width,
        common_width,
        tuple(layouts),
        threads=threads and several,
        grain=1,
        grid=grid,
        features=features,
    )


def _layout(plan: Plan, var: Atom, stacked: bool) -> tuple[int, ...]:
    """Dimensions of a buffer, outermost first: a vector lane lies innermost."""
    lanes = plan.local_lanes(var)
    if stacked and is_batch_major(plan, var):
        return lanes_first(plan, var)
    if _beside(plan, var) <= INTERLEAVED:
        return tuple(range(len(lanes) + stacked))
    order = sorted(
        range(len(lanes)),
        key=lambda i: _order(plan, lanes, i),
    )
    return (0, *(i + 1 for i in order)) if stacked else tuple(order)


def _beside(plan: Plan, var: Atom) -> int:
    """How many numbers of a vector lane lie side by side in row-major order."""
    lanes = plan.local_lanes(var)
    if plan.vector not in lanes or plan.vector is None:
        return 1
    after = lanes.index(plan.vector) + 1
    if any(lanes[after:]):  # cut into tiles: not side by side in one of them
        return INTERLEAVED + 1
    return prod(var.aval.shape[after:])


def _order(plan: Plan, lanes: tuple[Lane | None, ...], i: int) -> tuple[bool, int]:
    """Vector lanes last, together with the dimensions folded into them.

    A dimension is folded into the next one that is a lane of more than one position.
    """
    lane = lanes[i]
    if lane is None:
        return False, i
    return next((l for l in lanes[i:] if l and l.size > 1), lane).vector, i


def buffer_layouts(plan: Plan) -> tuple[list[Any], list[Any]]:
    """Orders of dimensions, minor to major, of the operands and of the results."""
    layouts: list[Any] = [order[::-1] for order in plan.layouts]
    types: list[Any] = [*plan.loop.body.in_avals, *plan.loop.body.out_avals]
    # nobody reads these, and XLA fails to turn them
    empty = [i for i, aval in enumerate(types) if 0 in aval.shape]
    for i in (*plan.batch_major, *empty):  # the others come in the kernel's own order
        layouts[i] = None
    operands, results = ([layouts[i] for i in some] for some in plan.buffers)
    return operands + [layouts[i] for i in plan.tails], results


def turned_around(plan: Plan) -> int:
    """Numbers that the program turns for a kernel in all its steps, and back."""
    loop = plan.loop
    types: list[Any] = [*loop.body.in_avals, *loop.body.out_avals]
    count, fixed = len(loop.body.in_avals), loop.num_consts + loop.num_carry
    found = 0
    for i, (aval, order) in enumerate(zip(types, plan.layouts, strict=True)):
        stacked = fixed <= i < count or i >= count + loop.num_carry
        sizes = ((loop.length, *aval.shape) if stacked else aval.shape) if order else ()
        kept = [axis for axis in order if sizes[axis] > 1]
        if i not in plan.batch_major and kept != sorted(kept):
            found += prod(sizes)
    return found


def power_below(n: int) -> int:
    """The largest power of two up to n."""
    return 1 << (max(n, 1).bit_length() - 1)
