"""quotients: what many numbers are divided by is turned over once, as XLA does.

XLA computes ``x / 3`` as a product with a third, and ``x / y[:, None]`` as one with
``1 / y``, which has fewer elements.  A division takes a processor several times as long
as a product, and a chain of steps waits for it.  So do kernels, in the types that they
compute in: the half ones are rounded often enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, prod
from typing import Any, cast

import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Literal, Var

from onescan.loop import Equation
from onescan.passes.worth import elements

#: how many times as many quotients as divisors there must be
MORE = 2
#: equations before a division among which its divisor is looked for
BEFORE = 16

Atom = Any
#: what an equation computes, as a function of such operands
Rewritten = tuple[Callable[..., Any], list[Atom]]


def by_reciprocal(
    eqn: Equation, inputs: list[Atom], before: Sequence[JaxprEqn]
) -> Rewritten | None:
    """A quotient as a product, if its divisor is a constant or has fewer elements."""
    if eqn.primitive.name != "div":
        return None
    out: Any = eqn.outvars[0].aval
    x, divisor = inputs
    if out.dtype not in (np.float32, np.float64):
        return None
    if isinstance(divisor, Literal):
        return _by_constant(x, divisor)
    if isinstance(x, Literal):
        return None
    spread = _spread(divisor, before)
    source: Any = divisor if spread is None else spread.invars[0]
    divisors, quotients = elements([source]), prod(out.shape)
    if isinstance(source, Literal) or not 0 < MORE * divisors <= quotients:
        return None

    def product(x: Any, y: Any) -> Any:
        inverse = lax.div(lax.full_like(y, 1), y)
        if spread is None:
            return x * inverse
        dimensions = spread.params["broadcast_dimensions"]
        return x * lax.broadcast_in_dim(inverse, spread.params["shape"], dimensions)

    return product, [x, source]


def _by_constant(x: Atom, divisor: Literal) -> Rewritten | None:
    """For a number that is as exact turned over as other numbers are."""
    value, aval = np.asarray(divisor.val), cast(Any, divisor.aval)
    if value.ndim or not isinstance(x, Var):
        return None
    kind = aval.dtype
    with np.errstate(all="ignore"):
        inverse = np.asarray(1, kind) / value.astype(kind)
    normal = isfinite(inverse) and abs(inverse) >= np.finfo(kind).tiny
    return (lambda x: x * inverse.astype(kind), [x]) if normal else None


def _spread(divisor: Atom, before: Sequence[JaxprEqn]) -> JaxprEqn | None:
    """The equation that spread a divisor over more elements."""
    for eqn in reversed(before[-BEFORE:]):
        if divisor in eqn.outvars:
            plain = eqn.primitive.name == "broadcast_in_dim" and len(eqn.invars) == 1
            return eqn if plain else None
    return None
