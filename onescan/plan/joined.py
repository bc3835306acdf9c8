"""joined: complex numbers that a kernel reads and writes where they stand.

In a body they are two values, the real and the imaginary part (`passes/pairs.py`).  In
a buffer the parts of each number stand side by side.  Taking a buffer apart before a
loop, and putting one together after it, would cost as much as a short loop does; so
both parts share the buffer as it is.  Vectors of parts are made of vectors of numbers
by shuffles, as those of any numbers that stand side by side (`emit/interleave.py`).

Constants stay apart: they are taken apart once, and read in every step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from jax.extend.core import Var

from onescan import compat
from onescan.loop import Aval, nbytes
from onescan.plan.plan import Plan

#: bytes of one part of a carry up to which its kernel keeps a copy of it: a larger one
#: is computed in its result, and stands there in parts
LARGEST = 1 << 15


def joined(plan: Plan) -> Plan:
    """The plan, with buffers of complex numbers wherever that is possible."""
    loop = plan.loop
    if not loop.pairs or plan.stencil:
        return plan
    count = len(loop.body.in_avals)
    fixed, first_y = loop.num_consts + loop.num_carry, count + loop.num_carry
    carries = range(loop.num_consts, fixed), range(count, first_y)
    stacks = range(fixed, count), range(first_y, len(plan.layouts))
    variables = _variables(plan)
    found: set[int] = set()
    for kind in (*carries, *stacks):
        for i in kind[:-1]:
            fits = kind in stacks or _is_small(plan, variables[i])
            if fits and i - 1 not in found and _may_share(plan, i, variables):
                found.add(i)
    stacked = [variables[i].aval for kind in stacks for i in found if i in kind]
    left = loop.converted - 2 * nbytes(stacked)
    return replace(
        plan, joined=frozenset(found), loop=loop.replace(converted=max(left, 0))
    )


def whole_type(plan: Plan, i: int, aval: Aval) -> Any:
    """The type of the buffer of variable i, whose own type is given."""
    if i not in plan.joined:
        return aval
    return compat.array_type(aval.shape, np.result_type(aval.dtype, np.complex64))


def _variables(plan: Plan) -> list[Any]:
    """What says how each buffer lies along the lanes: operands, then results."""
    loop, jaxpr = plan.loop, plan.loop.body.jaxpr
    carries = jaxpr.invars[loop.num_consts : loop.num_consts + loop.num_carry]
    return [*jaxpr.invars, *carries, *jaxpr.outvars[loop.num_carry :]]


def _may_share(plan: Plan, i: int, variables: list[Any]) -> bool:
    """Whether a variable and the next one are parts that lie alike."""
    re, im = variables[i], variables[i + 1]
    if not all(isinstance(part, Var) for part in (re, im)):
        return False
    alike = plan.local_lanes(re) == plan.local_lanes(im)
    same = plan.layouts[i] == plan.layouts[i + 1]
    return (re, im) in plan.loop.pairs and alike and same and prod(re.aval.shape) > 0


def _is_small(plan: Plan, carry: Any) -> bool:
    return prod(plan.local_shape(carry)) * carry.aval.dtype.itemsize <= LARGEST
