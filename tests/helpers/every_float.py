"""Elementary functions of all float32 there are, against float64.

A GPU does the 2**32 of them in a second.  Its kernels use instructions of its own that
no CPU has, so this is where their accuracy is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import onescan

#: the functions that have such instructions, and their meaning for float64
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "tanh": (jnp.tanh, jnp.tanh),
    "logistic": (jax.nn.sigmoid, lambda x: 1 / (1 + jnp.exp(-x))),
}
LIMIT = 2.0  # units in the last place
LANES, STEPS = 1 << 24, 2
#: of a CPU's, which has no such instructions, one in so many will do
FEWER = 64


def worst_of(name: str) -> tuple[float, float]:
    """The largest error, and where; NaN if a NaN, an infinity or a sign is wrong."""
    on_gpu = jax.default_backend() == "gpu"
    lanes = LANES if on_gpu else LANES // FEWER
    stride = 1 if on_gpu else FEWER
    with jax.enable_x64(True):
        look = jax.jit(partial(_look, name, lanes, stride))
        starts = range(0, 1 << 32, STEPS * lanes * stride)
        found = [look(np.uint32(start)) for start in starts]
        return max(jax.device_get(found), key=lambda pair: (pair[0] != pair[0], pair))


def _look(name: str, lanes: int, stride: int, start: Any) -> tuple[Any, Any]:
    """The worst of some floats, from the one with these bits on."""
    ours, exactly = FUNCTIONS[name]
    bits = start + jax.lax.iota(jnp.uint32, STEPS * lanes) * np.uint32(stride)
    x = jax.lax.bitcast_convert_type(bits, jnp.float32).reshape(STEPS, lanes)
    _, y = onescan.scan(lambda c, x: (c, ours(x)), jnp.float32(0), x)
    error = _error(x, y, exactly(x.astype(jnp.float64))).ravel()
    worst = jnp.argmax(error)  # the first NaN, if there is one
    return error[worst], x.ravel()[worst]


def _error(x: Any, y: Any, exact: Any) -> Any:
    """In units in the last place; a result too small to be normal may be zero."""
    _, exponent = jnp.frexp(exact)
    unit = jnp.exp2(jnp.maximum(exponent - 1, -126) - 23.0)
    error = jnp.abs(y.astype(jnp.float64) - exact) / unit
    flushed = (y == 0) & (jnp.abs(exact) < 2.0**-126)
    error = jnp.where(flushed, 0.0, error)
    right_sign = jnp.signbit(y) == jnp.signbit(exact)
    error = jnp.where(right_sign & jnp.isfinite(y), error, jnp.nan)
    return jnp.where(jnp.isnan(x), jnp.where(jnp.isnan(y), 0.0, jnp.nan), error)
