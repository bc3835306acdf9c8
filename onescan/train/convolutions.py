"""Whether a step has convolutions, which XLA's CPU compiler is slow with in a loop.

It has a library for them that it uses at the top of a program. Inside a loop (JAX 0.10
to 0.12) most run as plain nested loops, so a chunk of such steps is no loop.
"""

from __future__ import annotations

from typing import Any

from onescan.plan.work import equations

CONVOLUTION = "conv_general_dilated"


def has_convolutions(jaxpr: Any) -> bool:
    """Whether a step has any.

    >>> import jax, jax.numpy as jnp
    >>> blur = lambda x: jnp.convolve(x, jnp.ones(3))
    >>> has_convolutions(jax.make_jaxpr(blur)(jnp.arange(4.0)).jaxpr)
    True
    """
    return any(eqn.primitive.name == CONVOLUTION for eqn in equations(jaxpr))
