"""`onescan.first_nonfinite`: what `check="finite"` would raise, as a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer

from onescan.api import reference
from onescan.api.arguments import checked
from onescan.errors import ScanTypeError
from onescan.long.blame import NonFinite
from onescan.long.finite import Finite
from onescan.long.loop import run
from onescan.long.options import Options
from onescan.long.step import Types, typed
from onescan.naming import function_name


def first_nonfinite(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> NonFinite | None:
    """The first step of `scan(f, init, xs, length, reverse)` that is not finite.

    Returns:
        A `NonFinite` with the step, the leaf of carry or y, and the operation and line
        of code that made the first NaN or infinity from finite numbers; None if every
        carry and y is finite.

    >>> import jax.numpy as jnp, onescan
    >>> def step(x, _):
    ...     x = x - 1.0
    ...     return x, jnp.log(x)
    >>> found = onescan.first_nonfinite(step, 2.5, length=5)
    >>> print(found.step, found.leaf, found.operation)
    2 y log
    >>> onescan.first_nonfinite(step, 9.5, length=5) is None
    True
    """
    xs, steps, _ = checked(f, init, xs, length, 1)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((init, xs))):
        raise ScanTypeError(
            f"onescan.first_nonfinite: {function_name(f)} is called inside a function "
            "that JAX traces, where there are no values to look at. Use "
            'onescan.scan(..., check="finite") there.'
        )
    if steps == 0:
        return None
    options = Options(f, steps, check="finite")
    checks: list[Finite] = []

    @jax.jit
    def look(init: Any, xs: Any) -> tuple[Any, Any]:
        types = Types.of(f, init, xs)
        init = jax.tree.map(reference.as_type, types.carry, init)
        state, _ = run(f, types, init, xs, steps, reverse, 1, options)
        checks.append(Finite(typed(f, types), init, xs, steps, reverse))
        return state.bad, checks[-1].flags_if(state.bad)

    bad, flags = look(init, xs)
    return checks[-1].record(bad, flags)
