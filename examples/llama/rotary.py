"""Rotary embedding: pairs of features turn by an angle that grows with the position."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.llama.config import Config


def frequencies(config: Config) -> np.ndarray:
    """The angle of each pair of features per position, (K / 2,)."""
    half = config.head // 2
    freqs = config.rope_theta ** (-np.arange(half, dtype=np.float64) / half)
    scaling = config.rope_scaling
    if scaling is not None:
        # Waves that fit many times into what the model was trained on stay; those
        # that do not fit are stretched by the factor; between them, a mixture.
        turns = scaling.original_positions * freqs / (2 * math.pi)
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        kept = np.clip((turns - low) / (high - low), 0, 1)
        freqs = kept * freqs + (1 - kept) * freqs / scaling.factor
    return freqs.astype(np.float32)


def angles(config: Config, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine for positions (B, S), each (B, S, K / 2), in float32."""
    turned = positions[..., None].astype(jnp.float32) * frequencies(config)
    return jnp.cos(turned), jnp.sin(turned)


def rotate(x: jax.Array, cos: Any, sin: Any) -> jax.Array:
    """Turn x, (B, S, ..., K), whose pairs are its first and its second half."""
    between = [1] * (x.ndim - 3)
    cos = cos.reshape(*cos.shape[:2], *between, -1)
    sin = sin.reshape(*sin.shape[:2], *between, -1)
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return turned.astype(x.dtype)
