"""Waves by split steps: half of a step in frequencies, half of it in places."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs.program import Program

LENGTH = 20.0


def frequencies(n: int) -> np.ndarray:
    return 2 * np.pi * np.fft.fftfreq(n, LENGTH / n)


def schroedinger(*shape: int, waves: int = 1, steps: int = 300):
    """The nonlinear Schroedinger equation on a torus; the energy of every step."""
    grid = np.meshgrid(*(frequencies(n) for n in shape), indexing="ij")
    size, dt = sum(k**2 for k in grid), 1e-3
    turn = jnp.asarray(np.exp(-0.5j * dt * size), np.complex64)

    def run(wave):
        def step(u, _):
            u = jnp.fft.ifftn(turn * jnp.fft.fftn(u))
            u = u * jnp.exp(1j * dt * jnp.abs(u) ** 2)
            return u, jnp.mean(jnp.abs(u) ** 2)

        return lax.scan(step, wave, None, length=steps)

    parts = np.random.default_rng(0).normal(size=(2, waves, *shape))
    first = jnp.asarray(parts[0] + 1j * parts[1], np.complex64)
    return (run, (first[0],)) if waves == 1 else (jax.vmap(run), (first,))


def burgers(n: int):
    """Burgers' equation, by transforms of real numbers."""
    k = jnp.asarray(frequencies(n)[: n // 2 + 1] * [*[1] * (n // 2), -1], np.float32)
    dt, viscosity = 1e-3, 0.05
    damping = jnp.exp(-viscosity * dt * k**2)

    def run(u):
        def step(u, _):
            slope = jnp.fft.rfft(0.5 * u**2) * (1j * k)
            u = jnp.fft.irfft(damping * (jnp.fft.rfft(u) - dt * slope))
            return u.astype(jnp.float32), None

        return lax.scan(step, u, None, length=300)[0]

    x = np.linspace(0, LENGTH, n, endpoint=False)
    return run, (jnp.asarray(np.exp(-((x - 8) ** 2)), np.float32),)


PROGRAMS = [
    *(Program(f"split step/{n}", lambda n=n: schroedinger(n)) for n in (64, 256, 1024)),
    Program("split step/64x64", lambda: schroedinger(64, 64)),
    Program("split step/100 of 128", lambda: schroedinger(128, waves=100)),
    Program("burgers/512", lambda: burgers(512)),
]
