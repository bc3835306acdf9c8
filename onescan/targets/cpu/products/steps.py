"""Products inside a step that x86's matrix unit does.

The unit (`emit/amx.py`) wants the numbers of a matrix taken apart and in an order of
its own.  For weights, which all steps read, this is done once for each thread before
its first step; what meets them is taken apart in every step.  So a product goes to the
unit where the weights are a constant of the loop and every row of them meets enough
rows of the other operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from onescan.loop import Atom, Equation
from onescan.plan.plan import Plan
from onescan.primitives import record_of

#: steps from which taking weights apart once is worth it
STEPS = 32
#: rows of the operand that changes, length of the sums, and columns: with fewer,
#: vectors are as fast, or nearly so and never stall
ROWS, DEPTH, COLUMNS = 32, 128, 64
#: weights of more numbers than this are no longer in the L2 cache when a step
#: comes back to them
MOST = 1 << 20


@dataclass(frozen=True)
class Product:
    """``x @ y`` of rows by depth and, one way or the other, depth by columns."""

    rows: int
    depth: int
    columns: int
    weights: Any  # the variable y
    transposed: bool  # whether y is columns by depth


def tiled(plan: Plan, eqn: Equation) -> Product | None:
    """How the unit does an equation, if it is one for the unit."""
    if "amx" not in plan.features or plan.width == 1:
        return None
    loop = plan.loop
    if record_of(eqn).kind != "product" or loop.length < STEPS:
        return None
    x, y = eqn.invars
    weights = loop.body.jaxpr.invars[: loop.num_consts]
    (cx, cy), (bx, _) = eqn.params["dimension_numbers"]
    matrices = len(x.aval.shape) == len(y.aval.shape) == 2 and tuple(cx) == (1,)
    if bx or not matrices or not any(v is y for v in weights):
        return None
    types = {v.aval.dtype for v in (x, y, eqn.outvars[0])}
    if types != {np.dtype("float32")} or any(plan.local_lanes(y)):
        return None
    rows, depth = plan.local_shape(x)
    found = Product(rows, depth, y.aval.shape[1 - cy[0]], y, transposed=cy[0] == 1)
    large = rows >= ROWS and depth >= DEPTH and found.columns >= COLUMNS
    return found if large and prod(y.aval.shape) <= MOST else None


def is_tiled(plan: Plan, var: Atom) -> bool:
    """Whether the unit does everything that a constant is read for."""
    readers = [
        eqn for eqn in plan.loop.body.jaxpr.eqns if any(v is var for v in eqn.invars)
    ]
    return all(tiled(plan, eqn) for eqn in readers)


def told(plan: Plan) -> list[str]:
    """What the report says of it."""
    count = sum(tiled(plan, eqn) is not None for eqn in plan.loop.body.jaxpr.eqns)
    if not count:
        return []
    products = f"{count} matrix product{'s' * (count > 1)}"
    return [
        f"gave {products} of each step to the processor's matrix unit (AMX), in "
        "pieces that make up all of float32"
    ]
