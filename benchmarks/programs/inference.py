"""Particles, transport and chains: loops of statistics without a library."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs.program import Program


def particle_filter():
    """The bootstrap filter of the growth model, 1024 particles, 200 steps."""
    count = 1024

    def run(key, observed):
        def step(state, inputs):
            particles, key = state
            t, y = inputs
            key, move, choose = jax.random.split(key, 3)
            drift = 0.5 * particles + 25 * particles / (1 + particles**2)
            particles = drift + 8 * jnp.cos(1.2 * t)
            particles = particles + 3.0 * jax.random.normal(move, (count,))
            logs = -0.5 * (y - particles**2 / 20) ** 2
            weights = jax.nn.softmax(logs)
            ranks = (jnp.arange(count) + jax.random.uniform(choose)) / count
            rows = jnp.searchsorted(jnp.cumsum(weights), ranks)
            evidence = jax.nn.logsumexp(logs) - jnp.log(count)
            return (particles[rows], key), (weights @ particles, evidence)

        start = jax.random.normal(key, (count,)), key
        times = jnp.arange(len(observed), dtype=jnp.float32)
        return lax.scan(step, start, (times, observed))[1]

    rng = np.random.default_rng(0)
    return run, (jax.random.key(0), jnp.asarray(rng.normal(5, 3, 200), "float32"))


def sinkhorn(x, y):
    """The regularized transport cost of two clouds, 200 iterations."""
    cost = ((x[:, None] - y[None]) ** 2).sum(-1) / 0.5

    def step(state, _):
        _, g = state
        f = -jax.nn.logsumexp(g[None] - cost, axis=1)
        g = -jax.nn.logsumexp(f[:, None] - cost, axis=0)
        return (f, g), None

    start = jnp.zeros(len(x)), jnp.zeros(len(y))
    (f, g), _ = lax.scan(step, start, None, length=200)
    return jnp.sum(jnp.exp(f[:, None] + g[None] - cost) * cost)


def clouds(count: int = 64):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, count, 2)).astype("float32")
    return jnp.asarray(x), jnp.asarray(y)


def metropolis():
    """64 random-walk chains in 10 dimensions, 1000 steps."""

    def log_density(x):
        return -0.5 * jnp.sum(x**2 / jnp.arange(1.0, 11.0))

    def chain(key, x):
        def step(x, key):
            propose, accept = jax.random.split(key)
            new = x + 0.5 * jax.random.normal(propose, x.shape)
            ratio = log_density(new) - log_density(x)
            x = jnp.where(jnp.log(jax.random.uniform(accept)) < ratio, new, x)
            return x, x

        return lax.scan(step, x, jax.random.split(key, 1000))[1]

    def run(key):
        return jax.vmap(chain)(jax.random.split(key, 64), jnp.zeros((64, 10)))

    return run, (jax.random.key(0),)


def hmc():
    """Hamiltonian Monte Carlo for a logistic regression, 8 leapfrog steps each."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(200, 8)), "float32")
    y = jnp.asarray(rng.random(200) < 0.5, "float32")

    def energy(w):
        logits = x @ w
        return jnp.sum(jax.nn.softplus(logits) - y * logits) + 0.5 * w @ w

    def run(key, w):
        force = jax.grad(energy)

        def leapfrog(state, _):
            w, p = state
            p = p - 0.01 * force(w)
            w = w + 0.02 * p
            return (w, p - 0.01 * force(w)), None

        def step(w, key):
            draw, accept = jax.random.split(key)
            p = jax.random.normal(draw, w.shape)
            (new, q), _ = lax.scan(leapfrog, (w, p), None, length=8)
            change = energy(w) + 0.5 * p @ p - energy(new) - 0.5 * q @ q
            w = jnp.where(jnp.log(jax.random.uniform(accept)) < change, new, w)
            return w, w

        return lax.scan(step, w, jax.random.split(key, 300))[1]

    return run, (jax.random.key(0), jnp.zeros(8))


PROGRAMS = [
    # which particles survive may turn on a rounding
    # where rounding takes a rank past a weight, another particle is drawn
    Program("particle filter/1024", particle_filter, agree=0.5, tolerance=3e-2),
    Program("sinkhorn/64", lambda: (sinkhorn, clouds())),
    Program("sinkhorn/64 grad", lambda: (jax.grad(sinkhorn), clouds())),
    Program("metropolis/64x10", metropolis, agree=0.9),
    Program("hmc/logistic", hmc, agree=0.5, tolerance=1e-2),
]
