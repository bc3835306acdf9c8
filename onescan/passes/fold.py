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


def folded(eqn: Equation) -> Any:
    """The result of an equation of integers and truth values that are known."""
    known = KNOWN.get(eqn.primitive.name)
    if known is None or eqn.outvars[0].aval.shape:
        return None
    aval = eqn.outvars[0].aval
    values = [_known(v) for v in eqn.invars]
    if any(value is None for value in values):
        return None
    return Literal(np.asarray(known(*values), aval.dtype)[()], aval)


def _known(v: Any) -> Any:
    if not isinstance(v, Literal):
        return None
    aval: Any = v.aval
    dtype = aval.dtype
    return np.asarray(v.val, dtype)[()] if dtype.kind in "biu" else None
