"""Random bits of XLA's own generator, which JAX's "rbg" keys draw from.

XLA has Philox 4x32 with ten rounds for `rng_bit_generator` on CPUs and GPUs: a counter
of 128 bits for every four words, multiplied and mixed with a key of 64 bits.  Here it
is written out, so that kernels draw the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

ROUNDS = 10
#: what words of the counter are multiplied with, and what is added to the key
FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
STEPS = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
#: algorithms of JAX's by number: the default of a platform, and this one
KNOWN = (0, 2)


def drawn(eqn: Any) -> Callable[..., Any] | None:
    """What `rng_bit_generator` computes."""
    if eqn.primitive.name != "rng_bit_generator":
        return None
    params = eqn.params
    shape, dtype = params["shape"], np.dtype(params["dtype"])
    if int(params["algorithm"]) not in KNOWN or dtype.kind != "u":
        return None

    def draw(key: Any) -> tuple[Any, Any]:
        with jax.enable_x64(True):
            return _draw(key, tuple(shape), dtype)

    return draw


def _draw(state: Any, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    """Another state, and numbers."""
    narrow = state.dtype == np.uint32
    given = [state[i] for i in range(len(state))]
    key, start = (_whole(*given[:2]), _whole(*given[2:])) if narrow else given
    words = prod(shape) * max(1, dtype.itemsize // 4)
    count = -(-words // 4)
    low = start + lax.iota(np.uint64, count)
    high = key + (low < start).astype(np.uint64)
    parts = _mixed([*_halves(low), *_halves(high)], _halves(key))
    if dtype.itemsize == 8:
        parts = [_whole(*parts[:2]), _whole(*parts[2:])]
    numbers = jnp.stack(parts, -1).reshape(-1)[: prod(shape)].reshape(shape)
    after = [key, start + np.uint64(count)]
    if narrow:
        after = [half for x in after for half in _halves(x)]
    return jnp.stack(after), numbers.astype(dtype)


def _mixed(words: list[Any], key: tuple[Any, Any]) -> list[Any]:
    """Four words of every counter, after all rounds."""
    a, b, c, d = words
    first, second = key
    for _ in range(ROUNDS):
        low, high = _product(a, FACTORS[0])
        low_, high_ = _product(c, FACTORS[1])
        a, b, c, d = high_ ^ b ^ first, low_, high ^ d ^ second, low
        first, second = first + STEPS[0], second + STEPS[1]
    return [a, b, c, d]


def _product(x: Any, factor: np.uint64) -> tuple[Any, Any]:
    return _halves(x.astype(np.uint64) * factor)


def _whole(low: Any, high: Any) -> Any:
    """Numbers of 64 bits of their lower and upper words."""
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def _halves(x: Any) -> tuple[Any, Any]:
    """The lower and the upper word of numbers of 64 bits."""
    return x.astype(np.uint32), (x >> np.uint64(32)).astype(np.uint32)
