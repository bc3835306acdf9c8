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
import numpy as np
from numpyro_models import eight_schools, logistic
from rich.console import Console
from rich.table import Table

import onescan

WIDTHS = (8, 16, 32, 128, 512)


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
