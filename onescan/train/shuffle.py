"""A new order of the examples in every epoch, computed where it is needed.

`shuffled(positions, epoch, ...)` maps positions to examples, one to one. It is a small
cipher: a Feistel network on just enough bits, whose outputs past the last example are
enciphered again until they fall on one (cycle walking). Nothing is sorted or stored,
any step can be computed alone, so a run that resumes needs no history, and NumPy and
JAX give the same numbers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ROUNDS = 12  # four do on many bits (Luby and Rackoff); five examples want more


def shuffled(positions: Any, epoch: Any, size: int, seed: int) -> Any:
    """The examples that stand at `positions` (integers below `size`) of an epoch.

    NumPy arrays give NumPy arrays, and anything else is computed by JAX.

    >>> import numpy as np
    >>> order = shuffled(np.arange(5), np.zeros(5, int), size=5, seed=0)
    >>> print(sorted(order.tolist()))
    [0, 1, 2, 3, 4]
    """
    if isinstance(positions, np.ndarray):
        return _walk_numpy(positions, np.asarray(epoch), size, seed)
    x = jnp.asarray(positions).astype(jnp.uint32)
    key = _key(jnp.asarray(epoch).astype(jnp.uint32), seed)

    def again(x: Any) -> Any:
        return jnp.where(x >= size, _encipher(x, key, size), x)

    x = _encipher(x, key, size)
    x = jax.lax.while_loop(lambda x: (x >= size).any(), again, x)
    return x.astype(jnp.int32)


def _walk_numpy(positions: np.ndarray, epoch: np.ndarray, size: int, seed: int) -> Any:
    key = np.broadcast_to(_key(epoch.astype(np.uint32), seed), positions.shape)
    x = _encipher(positions.astype(np.uint32), key, size)
    while (outside := x >= size).any():
        x[outside] = _encipher(x[outside], key[outside], size)
    return x.astype(np.int32)


def _key(epoch: Any, seed: int) -> Any:
    low, high = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    return _mixed(_mixed(_mixed(epoch + _u32(1)) + _u32(low)) + _u32(high))


def _encipher(x: Any, key: Any, size: int) -> Any:
    """A one-to-one map of the numbers of as many bits as `size` needs."""
    bits = max(2, (size - 1).bit_length())
    right_bits = bits // 2
    left_mask = _u32((1 << bits - right_bits) - 1)
    right_mask = _u32((1 << right_bits) - 1)
    left, right = x >> _u32(right_bits), x & right_mask
    for turn in range(ROUNDS):
        salt = key + _u32(0x9E3779B9 * (turn + 1) & 0xFFFFFFFF)
        if turn % 2:
            right = (right ^ _mixed(left + salt)) & right_mask
        else:
            left = (left ^ _mixed(right + salt)) & left_mask
    return left << _u32(right_bits) | right


def _mixed(x: Any) -> Any:
    """A hash of 32 bits: the finaliser of MurmurHash3."""
    x = (x ^ x >> _u32(16)) * _u32(0x85EBCA6B)
    x = (x ^ x >> _u32(13)) * _u32(0xC2B2AE35)
    return x ^ x >> _u32(16)


def _u32(x: int) -> np.ndarray:
    return np.array(x, np.uint32)
