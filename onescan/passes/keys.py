"""How structural equations change when keys become uint32 arrays.

A key array of shape ``s`` is a uint32 array of shape ``s + (n,)``, so an
equation that only moves keys about moves whole rows of ``n`` words: its
parameters gain one last dimension that is taken whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import dtypes, lax
from jax.extend.core import Literal

from onescan import compat
from onescan.loop import Equation


def is_key(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, dtypes.prng_key)


def selection(eqn: Equation) -> Callable[..., Any] | None:
    """A choice between keys, a flag for each, as a choice between all their words."""
    if eqn.primitive.name != "select_n" or not is_key(eqn.outvars[0].aval):
        return None
    if not eqn.invars[0].aval.shape:
        return None

    def select(which: Any, *cases: Any) -> Any:
        shape = cases[0].shape
        return lax.select_n(
            lax.broadcast_in_dim(which, shape, range(which.ndim)), *cases
        )

    return select


def key_params(eqn: Equation, inputs: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Inputs and parameters of an equation on keys, for the raw uint32 arrays."""
    keys = [v.aval for v in eqn.outvars if is_key(v.aval)]
    if not eqn.invars or not keys:
        return inputs, eqn.params
    name, params = eqn.primitive.name, eqn.params
    words = compat.physical(keys[0]).shape[-1]
    rank = len(keys[0].shape)
    if name == "slice":
        strides = params["strides"]
        return inputs, {
            **params,
            "start_indices": (*params["start_indices"], 0),
            "limit_indices": (*params["limit_indices"], words),
            "strides": None if strides is None else (*strides, 1),
        }
    if name == "broadcast_in_dim":
        return inputs, {
            **params,
            "shape": (*params["shape"], words),
            "broadcast_dimensions": (*params["broadcast_dimensions"], rank),
        }
    if name == "reshape":
        return inputs, {**params, "new_sizes": (*params["new_sizes"], words)}
    if name == "transpose":
        return inputs, {**params, "permutation": (*params["permutation"], rank)}
    if name in ("dynamic_slice", "dynamic_update_slice"):
        start = Literal(np.int32(0), compat.scalar_aval(np.int32))
        inputs = [*inputs, start]
        if name == "dynamic_slice":
            params = {**params, "slice_sizes": (*params["slice_sizes"], words)}
        return inputs, params
    if name == "gather":
        numbers = params["dimension_numbers"]
        numbers = numbers._replace(offset_dims=(*numbers.offset_dims, rank))
        sizes = (*params["slice_sizes"], words)
        return inputs, {**params, "dimension_numbers": numbers, "slice_sizes": sizes}
    if name == "scatter":
        numbers = params["dimension_numbers"]
        last = len(eqn.invars[2].aval.shape)
        window = (*numbers.update_window_dims, last)
        numbers = numbers._replace(update_window_dims=window)
        return inputs, {**params, "dimension_numbers": numbers}
    return inputs, params
