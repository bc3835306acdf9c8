"""Whether a decode step runs by the kernels of `products.py` and `attending.py`."""

from __future__ import annotations

import importlib.util

import jax

from examples.llama.cache import KVCache
from examples.llama.config import Config
from examples.llama.products import MOST_TOKENS, NARROWEST


def suit(config: Config, seq: jax.Array, kv: KVCache) -> bool:
    """One new token (B, 1, D) for each of a few sequences, in sizes that fit."""
    wanted = config.kernels
    if wanted is None:
        wanted = kv.keys.dtype.itemsize == 2 and _available()
    few = seq.shape[1] == 1 and seq.shape[0] <= MOST_TOKENS
    wide = [config.model, config.hidden, config.head, kv.keys.shape[3]]
    fits = all(size % NARROWEST == 0 for size in wide)
    power_of_two = config.head & (config.head - 1) == 0
    return wanted and few and fits and power_of_two and config.repeats <= NARROWEST


def _available() -> bool:
    """On an NVIDIA GPU since Ampere, with a JAX that has Pallas for Triton."""
    device = jax.devices()[0]
    if device.platform != "gpu" or "cuda" not in device.client.platform_version:
        return False
    found = importlib.util.find_spec("jax.experimental.pallas.triton")
    return found is not None and int(device.compute_capability.split(".")[0]) >= 8
