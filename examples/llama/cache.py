"""The KV cache: keys and values of the tokens so far, for all layers.

A layer only reads its part of the cache and gives back the keys and values of the new
tokens.  `write` then puts those of all layers into the cache at once.  So the loop
over layers copies no cache, and a decode loop updates it in place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from examples.llama.config import Config

SLOTS = 64  # which attention takes at once; a cache has a multiple of them


class KVCache(NamedTuple):
    keys: jax.Array  # (layers, B, H, T, K): heads before time, as products want it
    values: jax.Array  # (layers, B, H, T, K)


class State(NamedTuple):
    """All that a sequence of calls has to remember."""

    kv: Any  # a KVCache, or, for a list of layers, a list of them without that axis
    used: jax.Array  # (B, T), whether a slot holds a token
    filled: jax.Array  # (), the slots written so far, the same for all of the batch
    position: jax.Array  # (B,), the position of the next token


def slots_for(tokens: int) -> int:
    """How many slots a cache of so many tokens has.

    >>> slots_for(100)
    128
    """
    return -(-tokens // SLOTS) * SLOTS


def empty_state(config: Config, batch: int, slots: int, dtype: Any) -> State:
    """A state in which nothing is written yet."""
    shape = (config.layers, batch, config.kv_heads, slots, config.head)
    return State(
        KVCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)),
        jnp.zeros((batch, slots), bool),
        jnp.zeros((), jnp.int32),
        jnp.zeros((batch,), jnp.int32),
    )


def write(state: State, new: Any, token_mask: jax.Array) -> State:
    """The state with the keys and values (..., B, H, S, K) of S new tokens."""

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new, state.filled, axis=-2)

    return State(
        jax.tree.map(put, state.kv, new),
        jax.lax.dynamic_update_slice_in_dim(
            state.used, token_mask, state.filled, axis=1
        ),
        state.filled + token_mask.shape[1],
        state.position + token_mask.sum(axis=1, dtype=jnp.int32),
    )
