"""What the engine's tests do on older JAX versions.

The engine has one meaning on every JAX, that of the newest.  Where an older XLA is
wrong it is no measure: the tests leave out the places of the table `WRONG`.

What can differ between versions is which equations a program has, and what XLA
answers.  One variant of each shows that, so the slow tests run whole only on the
newest JAX (`NEWEST`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from engines import is_subnormal

Version = tuple[int, ...]

NEWEST = jax.__version_info__ >= (0, 12)

#: operation: (JAX version that mended it, where it was wrong, what it gave there)
WRONG: dict[str, tuple[Version, Callable[..., Any], str]] = {
    "digamma": ((0, 11), lambda x: x == 0, "NaN at its pole at zero, not -inf"),
    "lgamma": ((0, 11), is_subnormal, "inf, though it does not flush them elsewhere"),
    "to_bool": (
        (0, 11),
        lambda x: is_subnormal(x) & (x.dtype == jnp.bfloat16),
        "true, though its threads take subnormal numbers for zeros",
    ),
}


def wrong_at(name: str, *args: Any) -> np.ndarray:
    """For every element, whether the installed XLA is known to be wrong there."""
    arrays = [np.asarray(x) for x in args]
    mended, where, _ = WRONG.get(name, ((), None, ""))
    if where is None or jax.__version_info__ >= mended:
        return np.zeros(arrays[0].shape, bool)
    return np.asarray(where(*arrays))
