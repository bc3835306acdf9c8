"""Training loops as one scan: a small perceptron by Adam, of optax or of our own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs import adam
from programs.program import Program

STEPS, BATCH = 300, 32


def data() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1024, 16)).astype("float32")
    return jnp.asarray(x), jnp.asarray(np.sin(x.sum(1, keepdims=True)))


def error(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((adam.network(params, x) - y) ** 2)


def mlp():
    x, y = data()

    def train(params: Any, key: Any):
        def step(state: Any, key: Any):
            params, optimizer = state
            rows = jax.random.randint(key, (BATCH,), 0, len(x))
            value, grads = jax.value_and_grad(error)(params, x[rows], y[rows])
            return adam.update(grads, optimizer, params, 1e-3), value

        start = params, adam.init(params)
        (params, _), losses = lax.scan(step, start, jax.random.split(key, STEPS))
        return params, losses

    params = adam.dense(jax.random.key(0), 16, 64, 64, 1)
    return train, (params, jax.random.key(1))


def mlp_optax():
    import optax

    x, y = data()
    optimizer = optax.adam(1e-3)

    def train(params: Any, key: Any):
        def step(state: Any, key: Any):
            params, opt = state
            rows = jax.random.randint(key, (BATCH,), 0, len(x))
            value, grads = jax.value_and_grad(error)(params, x[rows], y[rows])
            updates, opt = optimizer.update(grads, opt, params)
            return (optax.apply_updates(params, updates), opt), value

        start = params, optimizer.init(params)
        (params, _), losses = lax.scan(step, start, jax.random.split(key, STEPS))
        return params, losses

    params = adam.dense(jax.random.key(0), 16, 64, 64, 1)
    return train, (params, jax.random.key(1))


PROGRAMS = [
    Program("mlp/adam", mlp, tolerance=1e-2),
    Program("mlp/optax", mlp_optax, needs=("optax",), tolerance=1e-2),
]
