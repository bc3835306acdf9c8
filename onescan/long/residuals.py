"""What a step leaves for its gradient, in bytes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
from jax.extend.core import Jaxpr, Var

from onescan import compat
from onescan.api import reference


def residual_bytes(f: Callable[..., Any], carry: Any, xs: Any) -> int:
    """Bytes of the values of one step that reverse mode reads later.

    What does not depend on carry or x, such as weights, is there once for all steps
    and not counted.
    """
    x = jax.tree.map(reference.type_of_entry, xs)

    def residuals(carry: Any, x: Any) -> Any:
        return jax.tree.leaves(jax.vjp(f, carry, x)[1])

    traced = jax.make_jaxpr(residuals)(carry, x).jaxpr
    moving = _depending(traced)
    kept = {v for v in traced.outvars if isinstance(v, Var) and v in moving}
    return max(nbytes([v.aval for v in kept]), nbytes(carry))


def nbytes(types: Any) -> int:
    """Bytes of one value of each of these types."""
    kinds = [_in_memory(kind) for kind in jax.tree.leaves(types)]
    return sum(prod(kind.shape) * kind.dtype.itemsize for kind in kinds)


def _depending(jaxpr: Jaxpr) -> set[Var]:
    """The values that are not the same in every step."""
    moving = set(jaxpr.invars)
    for eqn in jaxpr.eqns:
        if any(isinstance(v, Var) and v in moving for v in eqn.invars):
            moving.update(eqn.outvars)
    return moving


def _in_memory(kind: Any) -> Any:
    return compat.physical(compat.array_type(kind.shape, kind.dtype))
