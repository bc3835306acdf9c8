"""Grids that change from step to step: reaction and diffusion, and an Ising magnet."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from programs.program import Program


def neighbours(x: jax.Array) -> jax.Array:
    return sum(jnp.roll(x, way, axis) for axis in (0, 1) for way in (1, -1))


def gray_scott():
    """Two substances on a 128 x 128 torus, 300 steps."""

    def run(u, v):
        def step(state, _):
            u, v = state
            reaction = u * v * v
            u = u + 0.16 * (neighbours(u) - 4 * u) - reaction + 0.035 * (1 - u)
            v = v + 0.08 * (neighbours(v) - 4 * v) + reaction - 0.1 * v
            return (u, v), None

        return lax.scan(step, (u, v), None, length=300)[0]

    u, v = jnp.ones((128, 128)), jnp.zeros((128, 128))
    square = slice(54, 74), slice(54, 74)
    return run, (u.at[square].set(0.5), v.at[square].set(0.25))


def ising(size: int, sweeps: int):
    """Metropolis in a checkerboard's order; the magnetization of every sweep."""

    def run(spins, key):
        rows, columns = jnp.indices(spins.shape)
        colour = (rows + columns) % 2

        def step(spins, key):
            for which, now in enumerate(jax.random.split(key)):
                cost = 2.0 * spins * neighbours(spins)
                chance = jax.random.uniform(now, spins.shape)
                flip = (chance < jnp.exp(-0.44 * cost)) & (colour == which)
                spins = jnp.where(flip, -spins, spins)
            return spins, spins.mean()

        return lax.scan(step, spins, jax.random.split(key, sweeps))

    return run, (jnp.ones((size, size)), jax.random.key(0))


def ising_carried():
    """The same with the key in the carry, as most people write it."""

    def run(spins, key):
        rows, columns = jnp.indices(spins.shape)
        colour = (rows + columns) % 2

        def step(state, _):
            spins, key = state
            for which in (0, 1):
                key, now = jax.random.split(key)
                cost = 2.0 * spins * neighbours(spins)
                chance = jax.random.uniform(now, spins.shape)
                flip = (chance < jnp.exp(-0.44 * cost)) & (colour == which)
                spins = jnp.where(flip, -spins, spins)
            return (spins, key), spins.mean()

        (spins, _), means = lax.scan(step, (spins, key), None, length=300)
        return spins, means

    return run, (jnp.ones((64, 64)), jax.random.key(0))


# a spin that a rounding turns changes what follows: half of the sweeps must agree
def first_sweeps(result):
    return result[1][:50]


PROGRAMS = [
    Program("gray-scott/128", gray_scott),
    Program("ising/64", lambda: ising(64, 300), checked=first_sweeps),
    Program("ising/64 key carried", ising_carried, checked=first_sweeps),
]
