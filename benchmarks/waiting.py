"""How long lanes of NUTS wait for each other, and what going on alone would gain.

Chains side by side take different numbers of leapfrog steps for a sample.  A kernel
runs a tile of lanes until the last of them has its sample, then all begin the next.  If
each went on by itself, a tile would take as long as the lane with the most steps in all
samples together.  The table shows both, as multiples of the mean number of steps; what
they differ by is the most that could be gained.

examples:
  python benchmarks/waiting.py
  python benchmarks/waiting.py --chains 1024
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import onescan

WIDTHS = (8, 16, 32, 128, 512)


def logistic() -> tuple[Callable[..., None], tuple[Any, ...]]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5, 0.0]) + rng.normal(size=64) > 0).astype(int)

    def model(x: Any, y: Any) -> None:
        weights = numpyro.sample("weights", dist.Normal(0, 1).expand([4]))
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    return model, (jnp.asarray(x), jnp.asarray(y))


def eight_schools() -> tuple[Callable[..., None], tuple[Any, ...]]:
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


def steps(model: Callable[..., None], data: tuple[Any, ...], chains: int) -> np.ndarray:
    """Leapfrog steps of each chain for each of 100 samples."""
    from numpyro.infer import MCMC, NUTS

    def run(key: Any) -> Any:
        mcmc = MCMC(NUTS(model), num_warmup=50, num_samples=100, progress_bar=False)
        mcmc.run(key, *data, extra_fields=("num_steps",))
        return mcmc.get_extra_fields()["num_steps"]

    return np.asarray(
        jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), chains))
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chains", type=int, default=512, help="side by side")
    options = parser.parse_args()
    onescan.install()
    table = Table(title="leapfrog steps that a tile takes, in means of its lanes")
    for name in ("model", "lanes", "waiting", "going on", "gain at most"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for build in (logistic, eight_schools):
        taken = steps(*build(), options.chains)
        for width in (w for w in WIDTHS if w <= options.chains):
            tiles = taken[: options.chains // width * width]
            tiles = tiles.reshape(-1, width, taken.shape[1])
            mean = tiles.mean(1).sum(1).mean()
            waiting, going_on = tiles.max(1).sum(1).mean(), tiles.sum(2).max(1).mean()
            table.add_row(
                build.__name__,
                str(width),
                f"{waiting / mean:.2f}",
                f"{going_on / mean:.2f}",
                f"{waiting / going_on:.2f}x",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
