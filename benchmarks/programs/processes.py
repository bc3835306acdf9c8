"""Gaussian processes of tinygp, whose solver for quasiseparable kernels is a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from programs.program import Build, Program

POINTS, SETS = 200, 64
RNG = np.random.default_rng(0)
TIMES = np.sort(RNG.uniform(0, 10, POINTS))
DATA = np.sin(TIMES) + 0.1 * RNG.normal(size=POINTS)

#: by name, of the module of kernels and a scale
KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "Matern32": lambda q, scale: q.Matern32(scale),
    "Matern52": lambda q, scale: q.Matern52(scale),
    "SHO": lambda q, scale: q.SHO(omega=1 / scale, quality=2.0),
    "Celerite": lambda q, scale: q.Celerite(1.0, 0.1, scale, 0.5),
    "CARMA": lambda q, scale: q.CARMA(
        alpha=jnp.stack([scale, 1.2]), beta=jnp.array([1.0, 3.0])
    ),
    "sum": lambda q, scale: q.Matern32(scale) + 0.5 * q.SHO(omega=2.0, quality=1.0),
    "product": lambda q, scale: q.Exp(scale) * q.Cosine(2.0),
}


def _process(kernel: str, what: str) -> Build:
    def build() -> Any:
        from tinygp import GaussianProcess
        from tinygp.kernels import quasisep

        times, data = jnp.asarray(TIMES), jnp.asarray(DATA)

        def process(scale: Any) -> Any:
            chosen = KERNELS[kernel](quasisep, scale)
            return GaussianProcess(chosen, times, diag=0.01, assume_sorted=True)

        def likelihood(scale: Any) -> Any:
            return process(scale).log_probability(data)

        def predictions(scale: Any) -> Any:
            found = process(scale).condition(data).gp
            return found.loc, found.variance

        scale = jnp.asarray(1.5)
        return {
            "likelihood": (likelihood, (scale,)),
            "gradient": (jax.value_and_grad(likelihood), (scale,)),
            "predictions": (predictions, (scale,)),
            "batch": (
                jax.vmap(jax.value_and_grad(likelihood)),
                (jnp.linspace(1.0, 2.0, SETS),),
            ),
        }[what]

    return build


PROGRAMS = [
    Program(f"tinygp/{kernel} {what}", _process(kernel, what), ("tinygp",), x64=True)
    for kernel in KERNELS
    for what in ("likelihood", "gradient", "predictions", "batch")
    if (kernel, what) != ("sum", "predictions")  # tinygp 0.3.1 fails to trace it
]
