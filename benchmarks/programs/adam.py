"""Adam as few lines, where optax may not be installed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def init(params: Any) -> Any:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return zeros, zeros, jnp.int32(0)


def update(grads: Any, state: Any, params: Any, rate: Any, most: float = jnp.inf):
    """New parameters and state; gradients of a larger norm than `most` are scaled."""
    first, second, count = state
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    scale = jnp.where(norm < most, 1.0, most / norm)
    grads = jax.tree.map(lambda g: g * scale, grads)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    m_scale, v_scale = 1 / (1 - 0.9**count), 1 / (1 - 0.999**count)
    params = jax.tree.map(
        lambda p, m, v: p - rate * m * m_scale / (jnp.sqrt(v * v_scale) + 1e-5),
        params,
        first,
        second,
    )
    return params, (first, second, count)


def dense(key: Any, *sizes: int) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases of a network with layers of these sizes."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (m, n)) / m**0.5, jnp.zeros(n))
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def network(params: Any, x: jax.Array, activation=jnp.tanh) -> jax.Array:
    for w, b in params[:-1]:
        x = activation(x @ w + b)
    w, b = params[-1]
    return x @ w + b
