"""The next token from its logits: the best, a random one, or one of the likeliest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Sampler:
    """Temperature 0 takes the best token; top_p < 1 leaves out the unlikely rest."""

    temperature: float = 0.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature must be >= 0, but it is {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], but it is {self.top_p}")

    def draw(self, logits: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Tokens (B,) from logits (B, V), and the key for the next ones."""
        if self.temperature == 0:  # no key is needed, and none is compiled
            return self(logits, None), key
        key, own_key = jax.random.split(key)
        return self(logits, own_key), key

    def __call__(self, logits: jax.Array, key: Any) -> jax.Array:
        """Tokens (B,) from logits (B, V)."""
        if self.temperature == 0:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        logits = logits / self.temperature
        if self.top_p < 1:
            logits = jnp.where(in_nucleus(logits, self.top_p), logits, -jnp.inf)
        return jax.random.categorical(key, logits, axis=-1).astype(jnp.int32)


def in_nucleus(logits: jax.Array, top_p: float) -> jax.Array:
    """The smallest set of likeliest tokens whose probabilities reach `top_p`."""
    best_first = jnp.sort(logits, axis=-1, descending=True)
    shares = jax.nn.softmax(best_first, axis=-1)
    before = jnp.cumsum(shares, axis=-1) - shares
    last = jnp.sum(before < top_p, axis=-1, keepdims=True) - 1
    return logits >= jnp.take_along_axis(best_first, last, axis=-1)
