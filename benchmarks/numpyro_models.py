"""Models of NumPyro that several benchmarks sample from, each with its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

Model = tuple[Callable[..., None], tuple[Any, ...]]


def eight_schools() -> Model:
    import numpyro
    import numpyro.distributions as dist

    y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def model() -> None:
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("schools", 8):
            raw = numpyro.sample("raw", dist.Normal(0, 1))
            numpyro.sample("obs", dist.Normal(mu + tau * raw, sigma), obs=y)

    return model, ()


def logistic() -> Model:
    """A logistic regression: 64 rows, 4 columns."""
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5, 0.0]) + rng.normal(size=64) > 0).astype(int)

    def model(x: Any, y: Any) -> None:
        weights = numpyro.sample("weights", dist.Normal(0, 1).expand([4]))
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    return model, (jnp.asarray(x), jnp.asarray(y))
