"""Short loops of complex numbers, whose arrays are most of their work."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs.program import Program


def numbers(*shape: int) -> jax.Array:
    parts = np.random.default_rng(0).normal(0, 0.3, (2, *shape))
    return jnp.asarray(parts[0] + 1j * parts[1], np.complex64)


def oscillators(time: int, width: int):
    """Damped oscillators with forces: a diagonal linear recurrence."""
    turn = jnp.asarray(0.9 * np.exp(1j * np.linspace(0, 1, width)), np.complex64)

    def run(forces):
        def step(x, force):
            x = turn * x + force
            return x, x

        return lax.scan(step, jnp.zeros(width, np.complex64), forces)

    return run, (numbers(time, width),)


def products(lanes: int, time: int):
    """Running products, one for each lane of a batch."""

    def run(xs):
        return lax.scan(lambda c, x: (0.5 * c * x + 1, c), jnp.complex64(1), xs)

    return jax.vmap(run), (numbers(lanes, time),)


def mandelbrot(side: int, rounds: int = 100):
    """How long each point of a square stays inside."""
    x, y = np.meshgrid(np.linspace(-2, 1, side), np.linspace(-1, 1, side))
    points = jnp.asarray((x + 1j * y).ravel(), np.complex64)

    def run(point):
        inside = lambda s: (s[1] < rounds) & (jnp.abs(s[0]) < 2)
        step = lambda s: (s[0] * s[0] + point, s[1] + 1)
        return lax.while_loop(inside, step, (jnp.zeros_like(point), 0))[1]

    return jax.vmap(run), (points,)


PROGRAMS = [
    Program("oscillators/16", lambda: oscillators(1000, 16)),
    Program("oscillators/1024", lambda: oscillators(1000, 1024)),
    Program("complex products/64", lambda: products(64, 1000)),
    Program("mandelbrot/64x64", lambda: mandelbrot(64)),
]
