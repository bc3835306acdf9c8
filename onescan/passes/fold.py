"""What is known of an equation by its literals: its result, or that it changes nothing.

`jnp.remainder(n, 8)` asks whether 8 is zero; divided by a literal, integers are
multiplied instead.  Such a number is often one that a user's function was given, as
`x * scale` is with a scale of 1, or `x + 0 * i`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Literal

from onescan.loop import Equation
from onescan.passes.traced import traced

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
FOLDED = {*KNOWN, "convert_element_type"}

#: the number that changes nothing: on the right of the other, or on either side; floats
#: too, but for -0.0 + 0
RIGHT = {"div": 1, "mul": 1, "sub": 0, "add": 0, "or": 0, "xor": 0}
LEFT = {"mul": 1, "add": 0, "or": 0, "xor": 0}
ANYTHING = frozenset(["div", "mul", "sub"])


def unchanged(eqn: Equation) -> Any:
    """The operand that an equation gives back as it is, if it does."""
    name = eqn.primitive.name
    if len(eqn.invars) != 2 or name not in RIGHT:
        return None
    aval = eqn.outvars[0].aval
    kinds = "biuf" if name in ANYTHING else "biu"
    if aval.dtype.kind not in kinds:
        return None
    x, y = eqn.invars
    for numbers, v, other in ((RIGHT, x, y), (LEFT, y, x)):
        if _is_number(other, numbers.get(name)) and v.aval == aval:
            return v
    return None


def zeros(eqn: Any) -> list[JaxprEqn] | None:
    """Zeros of the shape of integers that are multiplied by 0."""
    if eqn.primitive.name != "mul":
        return None
    aval = eqn.outvars[0].aval
    if aval.dtype.kind not in "iu":
        return None
    if not any(_is_number(v, 0) for v in eqn.invars):
        return None
    return traced(lambda: [lax.full(aval.shape, 0, aval.dtype)], [], eqn)


def _is_number(v: Any, number: int | None) -> bool:
    known = isinstance(v, Literal) and number is not None
    return known and not np.shape(v.val) and bool(v.val == number)


def folded(eqn: Equation) -> Any:
    """The result of an equation of integers and truth values that are known.

    And of a conversion: with 64 bits enabled, JAX converts the numbers of a program.
    """
    name = eqn.primitive.name
    if name not in FOLDED or not all(isinstance(v, Literal) for v in eqn.invars):
        return None
    aval = eqn.outvars[0].aval
    if aval.shape:
        return None
    values = [np.asarray(v.val, v.aval.dtype)[()] for v in eqn.invars]
    whole = all(value.dtype.kind in "biu" for value in values)
    if name not in KNOWN:
        exact = whole and aval.dtype.kind in "biuf"
        if exact or _is_rounded(values[0], aval):
            with np.errstate(over="ignore"):
                return Literal(values[0].astype(aval.dtype), aval)
        return None
    if not whole:
        return None
    return Literal(np.asarray(KNOWN[name](*values), aval.dtype)[()], aval)


def _is_rounded(value: Any, aval: Any) -> bool:
    """Whether NumPy rounds a number to another type of floats as XLA does."""
    return {value.dtype, aval.dtype} <= {np.dtype(np.float32), np.dtype(np.float64)}
