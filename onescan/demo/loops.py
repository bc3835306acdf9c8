"""The loops of the demo: ordinary JAX programs, written once.

Each takes the `scan` to use as its first argument and is otherwise plain JAX.  Their
settings are such that rounding does not grow from step to step, so that results from
two engines can be compared: the logistic map is in its periodic regime, and the
Lorenz system runs for two time units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Scan = Callable[..., tuple[Any, Any]]


@dataclass(frozen=True)
class Case:
    """A loop, and arguments for it with a given number of steps."""

    title: str
    steps: int
    run: Callable[..., Any]
    make: Callable[[int], tuple[Any, ...]]


def logistic_map(scan: Scan, start: jax.Array, years: jax.Array) -> jax.Array:
    """The size of a population after many years: p becomes r p (1 - p)."""

    def live(p: jax.Array, year: jax.Array) -> tuple[jax.Array, None]:
        return 3.5 * p * (1 - p), None

    return scan(live, start, years)[0]


def advantages(
    scan: Scan, rewards: jax.Array, values: jax.Array, alive: jax.Array
) -> jax.Array:
    """Generalised advantage estimation (GAE), from the last step to the first."""

    def back(carry: Any, x: Any) -> tuple[Any, jax.Array]:
        advantage, next_value = carry
        reward, value, alive = x
        delta = reward + 0.99 * next_value * alive - value
        advantage = delta + 0.99 * 0.95 * alive * advantage
        return (advantage, value), advantage

    zero = jnp.zeros_like(values[0])
    return scan(back, (zero, zero), (rewards, values, alive), reverse=True)[1]


def lorenz(scan: Scan, start: jax.Array, steps: jax.Array) -> jax.Array:
    """Trajectories of the Lorenz system by the Runge-Kutta method of order four."""

    def velocity(p: jax.Array) -> jax.Array:
        x, y, z = p
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def advance(p: jax.Array, dt: jax.Array) -> tuple[jax.Array, jax.Array]:
        k1 = velocity(p)
        k2 = velocity(p + dt / 2 * k1)
        k3 = velocity(p + dt / 2 * k2)
        k4 = velocity(p + dt * k3)
        p = p + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return p, p

    return scan(advance, start, steps)[1]


def kalman_filter(
    scan: Scan, observations: jax.Array, motion: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Track position, velocity, acceleration and jerk from noisy positions."""

    def update(carry: Any, seen: jax.Array) -> tuple[Any, Any]:
        mean, cov = carry
        mean, cov = motion @ mean, motion @ cov @ motion.T + noise
        variance = cov[0, 0] + 0.1
        gain = cov[:, 0] / variance
        surprise = seen - mean[0]
        mean, cov = mean + gain * surprise, cov - jnp.outer(gain, cov[0])
        likelihood = -0.5 * (surprise**2 / variance + jnp.log(variance))
        return (mean, cov), (mean, likelihood)

    size = motion.shape[0]
    return scan(update, (jnp.zeros(size), jnp.eye(size)), observations)[1]


def hmm_forward(
    scan: Scan, start: jax.Array, transitions: jax.Array, emissions: jax.Array
) -> jax.Array:
    """The likelihood of a sequence under a hidden Markov model, in logarithms."""

    def forward(alpha: jax.Array, emission: jax.Array) -> tuple[jax.Array, None]:
        paths = alpha[:, None] + transitions
        return jax.nn.logsumexp(paths, axis=0) + emission, None

    return jax.nn.logsumexp(scan(forward, start, emissions)[0])


def gru(scan: Scan, params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    """A recurrent network with gated units; the state after every step."""

    def cell(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        wz, wr, wn = jnp.split(x @ params["w"] + params["b"], 3, axis=-1)
        uz, ur, un = jnp.split(h @ params["u"], 3, axis=-1)
        z, r = jax.nn.sigmoid(wz + uz), jax.nn.sigmoid(wr + ur)
        h = (1 - z) * jnp.tanh(wn + r * un) + z * h
        return h, h

    hidden = params["u"].shape[0]
    return scan(cell, jnp.zeros((inputs.shape[1], hidden)), inputs)[1]


def gru_gradient(scan: Scan, params: dict[str, jax.Array], inputs: jax.Array) -> Any:
    """The gradient of a loss with respect to every parameter of the network."""
    return jax.grad(lambda params: jnp.mean(gru(scan, params, inputs) ** 2))(params)


def cases() -> list[Case]:
    """The loops in the order in which the table shows them."""
    return [
        Case("logistic map", 100_000, logistic_map, _population),
        Case("GAE, 64 agents", 2048, advantages, _rollout),
        Case("Lorenz, 1024 paths", 500, lorenz, _points),
        Case("Kalman, 4 states", 2000, kalman_filter, _track),
        Case("HMM, 16 states", 2000, hmm_forward, _chain),
        Case("GRU, 16 x 64", 256, gru, _network),
        Case("GRU gradient", 256, gru_gradient, _network),
    ]


def _population(steps: int) -> tuple[Any, ...]:
    return np.float32(0.3), np.arange(steps)


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _rollout(steps: int) -> tuple[Any, ...]:
    alive = _normal(steps, 64) > -2.0
    return _normal(steps, 64), _normal(steps, 64) + 1, alive.astype(np.float32)


def _points(steps: int) -> tuple[Any, ...]:
    return _normal(3, 1024), np.full(steps, 2.0 / 500, np.float32)


def _track(steps: int) -> tuple[Any, ...]:
    dt = 0.1
    row = np.array([1, dt, dt**2 / 2, dt**3 / 6], np.float32)
    motion = np.stack([np.roll(row, i) * (np.arange(4) >= i) for i in range(4)])
    positions = np.sin(0.02 * np.arange(steps)) + 0.3 * _normal(steps)
    noise = 0.01 * np.eye(4, dtype=np.float32)
    return positions.astype(np.float32), motion.astype(np.float32), noise


def _chain(steps: int) -> tuple[Any, ...]:
    def log_weights(*shape: int) -> np.ndarray:
        weights = np.exp(_normal(*shape))
        return np.log(weights / weights.sum(-1, keepdims=True))

    return log_weights(16), log_weights(16, 16), log_weights(steps, 16)


def _network(steps: int) -> tuple[Any, ...]:
    params = {
        "w": _normal(32, 192) / 6,
        "u": _normal(64, 192) / 8,
        "b": np.zeros(192, np.float32),
    }
    return params, _normal(steps, 16, 32)
