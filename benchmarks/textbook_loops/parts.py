"""What the loops are made of: numbers that are the same in every process."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random

#: ``(step, carry, xs, length)``
Loop = tuple[Any, Any, Any, int]
DRAWN = np.random.default_rng(0)
INDEX = jnp.int32(0)


def numbers(*shape: int) -> Any:
    return jnp.asarray(DRAWN.normal(size=shape).astype(np.float32))


def whole(most: int, *shape: int) -> Any:
    return jnp.asarray(DRAWN.integers(0, most, size=shape).astype(np.int32))


def scalars(count: int, value: float = 0.0) -> tuple[Any, ...]:
    return (jnp.float32(value),) * count


def keys(count: int) -> Any:
    return random.split(random.PRNGKey(0), count)
