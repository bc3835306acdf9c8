"""One loop by itself: what a step takes on each engine, with made-up numbers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from onescan import compat, switches
from onescan.errors import EngineWarning
from onescan.loop import Loop
from onescan.tune.speed import Speed

SECONDS = 0.02  # a sample is as many calls as fill this
SAMPLES = 5


def speed_of(loop: Loop) -> Speed | None:
    """A step of a loop on both engines, or None where the loop cannot be made up."""
    if not isinstance(loop.length, int) or not loop.length or loop.body.effects:
        return None
    values = [
        *map(made_up, loop.body.in_avals[: loop.num_consts + loop.num_carry]),
        *(made_up(compat.stacked(aval, loop.length)) for aval in loop.x_avals),
    ]
    if any(value is None for value in values):
        return None
    calls = {
        "xla": _compiled(loop, values, "xla"),
        "auto": _compiled(loop, values, "auto"),
    }
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(SAMPLES):
        for name, call in calls.items():
            samples[name].append(_seconds(call))
    xla, native = (median(samples[name]) / loop.length for name in ("xla", "auto"))
    return Speed(native=native, xla=xla, measured=True)


def made_up(aval: Any) -> jax.Array | None:
    """Numbers of a type: small ones that differ, keys of a seed."""
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        seeds = jnp.zeros(aval.shape, jnp.uint32)
        return jax.random.key(0) if not aval.shape else jax.vmap(jax.random.key)(seeds)
    if not all(isinstance(n, int) for n in aval.shape):
        return None
    size = max(1, aval.size)
    numbers = (jnp.arange(size) % 7).reshape(aval.shape or ())
    if jnp.issubdtype(aval.dtype, jnp.inexact):
        numbers = 0.1 + 0.1 * numbers
    return numbers.astype(aval.dtype)


def _compiled(loop: Loop, values: Sequence[Any], engine: Any) -> Callable[[], Any]:
    def run(*values: Any) -> Any:
        return compat.scan_of(loop, values)

    chosen = {"engine": engine, "installed": True, "strict": False, "check": False}
    with switches.using(**chosen), warnings.catch_warnings():
        warnings.simplefilter("ignore", EngineWarning)
        compiled = jax.jit(run).lower(*values).compile()
    return lambda: jax.block_until_ready(compiled(*values))


def _seconds(call: Callable[[], Any]) -> float:
    call()
    count, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < SECONDS or not count:
        call()
        count += 1
    return taken / count
