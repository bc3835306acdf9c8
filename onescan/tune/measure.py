"""measure: both engines on this machine, in turns, on made-up values.

The values are numbers between 0 and 1 and zeros for integers, so a loop whose work
depends on its values is timed on other work than it will do; `choose` does not ask for
those with a `while` in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from onescan import switches
from onescan.loop import Aval
from onescan.tune.speed import Speed

#: seconds that the calls of one measurement may take
SECONDS = 0.1
#: calls of each engine, at least and at most
FEWEST, MOST = 3, 20


def measured(
    native: Callable[..., Any],
    stock: Callable[..., Any],
    types: Sequence[Any],
    length: int,
) -> Speed:
    """Seconds of a step of two functions of arrays of these types."""
    args = jax.device_put([_made_up(aval, k) for k, aval in enumerate(types)])
    with switches.using(engine="xla"):  # as stock JAX has it, inner loops included
        xla = _compiled(stock, args)
    ours = _compiled(native, args)
    for call in (ours, xla):
        jax.block_until_ready(call(*args))
    taken: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + SECONDS
    while len(taken[0]) < MOST:
        if len(taken[0]) >= FEWEST and time.perf_counter() > end:
            break
        for call, times in zip((ours, xla), taken, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(call(*args))
            times.append(time.perf_counter() - start)
    native_seconds, xla_seconds = (min(times) / length for times in taken)
    return Speed(native_seconds, xla_seconds, measured=True)


def _compiled(f: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    return jax.jit(lambda *xs: f(*xs)).lower(*args).compile()


def _made_up(aval: Aval, seed: int) -> np.ndarray:
    shape, dtype = tuple(aval.shape), np.dtype(aval.dtype)
    if not jax.numpy.issubdtype(dtype, np.floating):
        return np.zeros(shape, dtype)
    return np.random.default_rng(seed).random(shape, np.float32).astype(dtype)
