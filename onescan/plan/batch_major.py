"""Batch-major: stacked values whose lanes lie one after the other, each with its steps.

`jax.vmap` of a loop moves the batch of xs behind time, and that of ys in front of it
again: (lanes, steps, ...) outside of the loop, (steps, lanes, ...) inside.  Where the
kernel takes and gives such arrays as they lie outside, XLA has nothing to move, which
takes it some 5 ns a number where it also reshapes.  Where vectors lie along lanes, the
kernel itself moves a few steps at a time (`emit/staged.py`), inside the L1 cache; rows
along which vectors lie it reads and writes where they are.

Whether a batch came by `jax.vmap` is known from the mark of the loop.  Only time
depends on it: the kernel says which layout it wants, and XLA provides it.
"""

from __future__ import annotations

from math import prod

from onescan.loop import Atom, Loop
from onescan.plan.plan import Plan

#: bytes of one lane in one step up to which a kernel moves them: more fill cache
#: lines of their own, and XLA moves those well
MOST_BYTES = 128


def may_be_batch_major(loop: Loop, var: Atom) -> bool:
    """Whether a kernel would move a stacked value itself, if lanes lie as they should.

    That is so for a few numbers of each lane.
    """
    shape, added = var.aval.shape, loop.added_axes
    here = prod(shape[added:]) * var.aval.dtype.itemsize
    return 0 < added <= len(shape) and 0 < here <= MOST_BYTES


def is_batch_major(plan: Plan, var: Atom) -> bool:
    """Whether the steps of one lane of a stacked value should lie side by side."""
    return is_staged(plan, var) or is_in_rows(plan, var)


def is_staged(plan: Plan, var: Atom) -> bool:
    """Whether a kernel has to move such a value to have its lanes in vectors."""
    added, lanes = plan.loop.added_axes, plan.local_lanes(var)
    front, rest = lanes[:added], lanes[added:]
    whole = plan.vector in front and None not in front and not any(rest)
    return whole and may_be_batch_major(plan.loop, var)


def is_in_rows(plan: Plan, var: Atom) -> bool:
    """Whether vectors lie along what each lane has in a step, or nowhere."""
    added, lanes = plan.loop.added_axes, plan.local_lanes(var)
    shape = plan.local_shape(var)
    if plan.grid is not None or not 0 < added < len(shape) or 0 in var.aval.shape:
        return False
    if any(lane is not None and lane.size == 1 for lane in lanes[:added]):
        return False  # folded into another lane, behind which it has to lie
    if plan.vector is None:
        return plan.minor(shape) == len(shape) - 1
    return lanes[-1] is plan.vector


def lanes_first(plan: Plan, var: Atom) -> tuple[int, ...]:
    """The dimensions of such a value, outermost first."""
    added, rank = plan.loop.added_axes, 1 + len(var.aval.shape)
    return (*range(1, added + 1), 0, *range(added + 1, rank))
