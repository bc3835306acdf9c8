"""Loops whose steps a gradient computes again, and that decide by rounding.

Equinox's checkpointed loop, which Diffrax differentiates through, keeps some states and
computes the steps between them again.  An adaptive solver accepts a step or not by an
error that is a difference of nearly equal numbers: in float32 rounding moves it by a
hundredth.  Where the second computation rounds otherwise than the first, it accepts
another step here and there, and the gradient is that of neither: of 640 trajectories 15
were off by a tenth.  XLA rounds both alike; a kernel of the loop and one of its
gradient do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Var

from onescan.loop import Equation, Loop
from onescan.plan.work import equations
from onescan.primitives import record_of

#: where such loops are defined, and the name of their bodies where there is a gradient
CHECKPOINTED = ("equinox", "internal", "_loop", "checkpointed.py")
BODY = "_body_fun"
COMPARISONS = frozenset({"ge", "gt", "le", "lt"})
#: bits of the largest floats that an error at a tolerance in use is close to
NARROW = 32
REASON = (
    "a gradient computes its steps again, and which are accepted follows from rounding "
    "in float32: XLA rounds both times alike. Kernels take it in float64"
)


def decides_by_rounding(loop: Loop) -> bool:
    """Whether a checkpointed loop compares what sums of many numbers came to."""
    file, _, _ = loop.source.rpartition(":")
    there = PurePath(file).parts[-len(CHECKPOINTED) :] == CHECKPOINTED
    if not there or loop.name != BODY:
        return False
    eqns = list(equations(loop.body.jaxpr))
    makers = {v: eqn for eqn in eqns for v in eqn.outvars}
    return any(_is_of_sums(eqn, makers) for eqn in eqns)


def _is_of_sums(eqn: Equation, makers: dict[Any, Equation]) -> bool:
    """Whether an equation compares floats that a product or a reduction led to."""
    if eqn.primitive.name not in COMPARISONS:
        return False
    seen: set[Any] = set()
    waiting = _narrow_floats(eqn.invars)
    while waiting:
        var = waiting.pop()
        if var in seen or var not in makers:
            continue
        seen.add(var)
        if record_of(makers[var]).kind in ("product", "reduction"):
            return True
        waiting += _narrow_floats(makers[var].invars)
    return False


def _narrow_floats(atoms: Sequence[Any]) -> list[Any]:
    return [v for v in atoms if isinstance(v, Var) and _is_narrow(v.aval)]


def _is_narrow(aval: Any) -> bool:
    floats = jnp.issubdtype(aval.dtype, jnp.floating)
    return floats and 8 * aval.dtype.itemsize <= NARROW
