"""What is known of a scalar equation whose operands are literals: its result.

`jnp.remainder(n, 8)` asks whether 8 is zero; divided by a literal, integers are
multiplied instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.extend.core import Literal

from onescan.loop import Equation

KNOWN: dict[str, Callable[..., Any]] = {
    "and": operator.and_,
    "eq": operator.eq,
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "ne": operator.ne,
    "or": operator.or_,
    "select_n": lambda which, *cases: cases[int(which)],
    "sign": np.sign,
}


def folded(eqn: Equation) -> Literal | None:
    """The result of an equation of integers and truth values that are known."""
    known = KNOWN.get(eqn.primitive.name)
    if known is None or len(eqn.outvars) != 1 or eqn.outvars[0].aval.shape:
        return None
    if not all(
        isinstance(v, Literal) and v.aval.dtype.kind in "biu" for v in eqn.invars
    ):
        return None
    aval = eqn.outvars[0].aval
    values: list[Any] = [np.asarray(v.val, v.aval.dtype)[()] for v in eqn.invars]
    return Literal(np.asarray(known(*values), aval.dtype)[()], aval)
