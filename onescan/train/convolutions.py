"""Convolutions in the one layout in which XLA is fast in a loop on a CPU.

XLA's CPU compiler has a library for convolutions of ``[batch, space..., feature]`` by
``[space..., in, out]``. It brings others into that form at the top of a program, but
not inside a loop (JAX 0.10 to 0.12), where they run as plain nested loops, several
times slower. So a step brings its own into that form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal
from jax.lax import ConvDimensionNumbers

from onescan import compat

CONVOLUTION = "conv_general_dilated"
CALLS = ("jit", "pjit", "closed_call")


def has_convolutions(jaxpr: Any) -> bool:
    """Whether there are any that `canonical` finds."""
    return any(
        eqn.primitive.name == CONVOLUTION
        or (eqn.primitive.name in CALLS and has_convolutions(_called(eqn)))
        for eqn in jaxpr.eqns
    )


def canonical(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, its convolutions in the fast layout.

    >>> import jax.numpy as jnp
    >>> blur = lambda x: jnp.convolve(x, jnp.ones(3))
    >>> print(canonical(blur)(jnp.arange(4.0)))
    [0. 1. 3. 6. 5. 3.]
    """

    def run(*args: Any) -> Any:
        jaxpr, types = jax.make_jaxpr(f, return_shape=True)(*args)
        outs = _evaluated(jaxpr.jaxpr, jaxpr.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(types), outs)

    return run


def _evaluated(jaxpr: Any, consts: Any, args: Any) -> list[Any]:
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    read = lambda v: v.val if isinstance(v, Literal) else values[v]
    for eqn in jaxpr.eqns:
        inputs = list(map(read, eqn.invars))
        if eqn.primitive.name == CONVOLUTION:
            outs = [_convolved(eqn, *inputs)]
        elif eqn.primitive.name in CALLS and has_convolutions(_called(eqn)):
            outs = _evaluated(_called(eqn), _consts(eqn), inputs)
        else:
            outs = compat.bind(eqn, inputs)
        values |= zip(eqn.outvars, outs, strict=True)
    return list(map(read, jaxpr.outvars))


def _called(eqn: Any) -> Any:
    called = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    return getattr(called, "jaxpr", called)


def _consts(eqn: Any) -> Any:
    called = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    return getattr(called, "consts", ())


def _convolved(eqn: Any, left: Any, right: Any) -> Any:
    batch, feature, *space = eqn.params["dimension_numbers"].lhs_spec
    out_feature, in_feature, *window = eqn.params["dimension_numbers"].rhs_spec
    out = eqn.params["dimension_numbers"].out_spec
    n = len(space)
    inner = tuple(range(1, n + 1))
    dimensions = ConvDimensionNumbers(
        (0, n + 1, *inner), (n + 1, n, *range(n)), (0, n + 1, *inner)
    )
    result = eqn.primitive.bind(
        left.transpose(batch, *space, feature),
        right.transpose(*window, in_feature, out_feature),
        **eqn.params | {"dimension_numbers": dimensions},
    )
    places = dict(zip(out, (0, n + 1, *inner), strict=True))
    return result.transpose(*(places[axis] for axis in range(n + 2)))
