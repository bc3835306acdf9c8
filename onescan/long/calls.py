"""Calls of Python from inside a compiled loop.

JAX has callbacks of its own; this one differs where a loop needs it to.  It is made
once for a whole batch of `jax.vmap`, with the batch in front of its arguments; it is
never left out, although nothing needs its result; and it may stand in what
`jax.checkpoint` runs again, where it is made again.  It has no derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive, Var
from jax.interpreters import batching, mlir
from jax.interpreters import partial_eval as pe

from onescan import compat

Tell = Callable[..., int | None]

call_p = Primitive("onescan_call")
call_p.multiple_results = True


def call(tell: Tell, *args: Any) -> Any:
    """``tell(*args)``, called with NumPy arrays when the program comes by; an int32."""
    constants = [lax.stop_gradient(jnp.asarray(arg)) for arg in args]
    return call_p.bind(*constants, tell=tell)[0]


def _told(tell: Tell) -> Callable[..., tuple[Any]]:
    def function(*args: Any) -> tuple[Any]:
        return (np.int32(tell(*map(np.asarray, args)) or 0),)

    return function


@call_p.def_impl
def _call_now(*args: Any, tell: Tell) -> list[Any]:
    return list(map(jnp.asarray, _told(tell)(*args)))


@call_p.def_effectful_abstract_eval
def _type_of_call(*args: Any, tell: Tell) -> Any:
    return [compat.scalar_aval(np.dtype(np.int32))], {compat.DEBUG_EFFECT}


def _lower(ctx: Any, *args: Any, tell: Tell) -> Sequence[Any]:
    return compat.emit_host_call(ctx, _told(tell), args)


def _batch(args: Sequence[Any], dims: Sequence[Any], *, tell: Tell) -> Any:
    """One call; what has no batch gets one of size 1."""
    mapped = [
        jnp.expand_dims(arg, 0) if dim is None else jnp.moveaxis(arg, dim, 0)
        for arg, dim in zip(args, dims, strict=True)
    ]
    return call_p.bind(*mapped, tell=tell), [None]


def _run_again(saveable: Any, unknown: Any, ready: Any, eqn: Any) -> Any:
    """In `jax.checkpoint`: both in the forward pass and in what is run again."""
    needed = [
        v
        for v, is_ready in zip(eqn.invars, ready, strict=True)
        if isinstance(v, Var) and not is_ready
    ]
    if any(unknown):
        return None, eqn, [True], [True], needed
    return eqn, eqn, [False], [True], needed


mlir.register_lowering(call_p, _lower, cacheable=False)
batching.primitive_batchers[call_p] = _batch
pe.partial_eval_jaxpr_custom_rules[call_p] = _run_again
