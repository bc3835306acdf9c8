"""Special functions that JAX itself writes as programs, by those programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax._src.lax import special as _special

#: primitives and what JAX calls their programs
PROGRAMS = {
    "bessel_i0e": "bessel_i0e_impl",
    "igamma": "igamma_impl",
    "igamma_grad_a": "igamma_grad_a_impl",
    "igammac": "igammac_impl",
    "regularized_incomplete_beta": "regularized_incomplete_beta_impl",
}


def special_function(eqn: Any) -> Callable[..., Any] | None:
    """A special function as the program that JAX lowers it to, if it has one."""
    name = PROGRAMS.get(eqn.primitive.name, "")
    program = getattr(_special, name, None)
    if program is None or len(eqn.invars) == 1:
        return program
    return _special._up_and_broadcast(program)
