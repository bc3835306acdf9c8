"""Programs whose loops are while loops: ensembles of Diffrax, chains of NumPyro.

The programs are those of a user who has never heard of onescan; `install()` is all that
differs.  Both engines run in turns in one process, and their results are compared.

The Lorenz ensemble is that of GPUODEBenchmarks: 3 float32 numbers, Tsit5 from t = 0 to
1, one parameter for each trajectory, only the end is kept.

On a machine without Diffrax, Equinox, NumPyro: `make gpu-libraries` puts them into
build/libraries, which is looked into first.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "build" / "libraries")]

import jax  # noqa: E402, after the path
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import numpyro_models  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from timing import in_turns  # noqa: E402

import onescan  # noqa: E402

EXAMPLES = """
examples:
  python benchmarks/whiles.py                      on a CPU, some minutes
  python benchmarks/whiles.py --quick              rough numbers
  python3 benchmarks/whiles.py --gpu --quick       on a GPU, under three minutes
  python3 benchmarks/whiles.py --gpu --only lorenz --json lorenz.json
"""
TOLERANCE = 1e-6
SIZES = {"cpu": (1024, 8192), "gpu": (8192, 131_072, 1_048_576, 8_388_608)}
QUICK = {"cpu": (1024,), "gpu": (8192, 8_388_608)}


@dataclass
class Case:
    name: str
    build: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    samples: int = 0  # of a call, where that is what counts


@dataclass
class Result:
    name: str
    stock: float = 0.0  # seconds of a call
    native: float = 0.0
    compile_stock: float = 0.0
    compile_native: float = 0.0
    difference: float = 0.0  # the largest, next to the largest result
    equal: float = 0.0  # the share of results that are the same bits
    samples: int = 0
    loops: list[str] = field(default_factory=list)
    trouble: str = ""

    @property
    def ratio(self) -> float:
        return self.stock / self.native if self.native else 0.0


def lorenz(count: int, adaptive: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The ends of Lorenz trajectories, each with a parameter of its own."""
    import diffrax
    import equinox as eqx

    class Lorenz(eqx.Module):
        rho: Any

        def __call__(self, t: Any, y: Any, args: Any) -> Any:
            dx = 10.0 * (y[1] - y[0])
            dy = self.rho * y[0] - y[1] - y[0] * y[2]
            dz = y[0] * y[1] - (8 / 3) * y[2]
            return jnp.stack([dx, dy, dz])

    if adaptive:
        steps = diffrax.PIDController(rtol=TOLERANCE, atol=TOLERANCE)
    else:
        steps = diffrax.ConstantStepSize()

    def end(rho: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(Lorenz(rho)),
            diffrax.Tsit5(),
            t0=0.0,
            t1=1.0,
            dt0=0.001,
            y0=jnp.array([1.0, 0.0, 0.0]),
            stepsize_controller=steps,
            saveat=diffrax.SaveAt(t1=True),
        )
        return solution.ys[0]

    return jax.vmap(end), (jnp.linspace(0.0, 21.0, count),)


def _sampler(
    model: Callable[..., Any], data: tuple[Any, ...], warmup: int, samples: int
) -> Callable[[Any], Any]:
    """NUTS of NumPyro as a function of a key, without its progress bar."""
    from numpyro.infer import MCMC, NUTS

    def run(key: Any) -> Any:
        mcmc = MCMC(
            NUTS(model), num_warmup=warmup, num_samples=samples, progress_bar=False
        )
        mcmc.run(key, *data)
        return mcmc.get_samples()

    return run


def eight_schools() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    model, data = numpyro_models.eight_schools()
    return _sampler(model, data, 200, 500), (jax.random.key(0),)


def logistic(chains: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Chains of a logistic regression side by side."""
    model, data = numpyro_models.logistic()
    run = _sampler(model, data, 50, 50)
    return jax.vmap(run), (jax.random.split(jax.random.key(0), chains),)


def cases(sizes: tuple[int, ...], chains: int) -> list[Case]:
    found = []
    for count in sizes:
        for adaptive in (True, False):
            way = "adaptive" if adaptive else "fixed steps"
            build = lambda c=count, a=adaptive: lorenz(c, a)
            found.append(Case(f"lorenz {count:,} {way}", build))
    found.append(Case("NUTS eight schools", eight_schools, 500))
    name = f"NUTS logistic, {chains:,} chains"
    found.append(Case(name, lambda: logistic(chains), 50 * chains))
    return found


def measured(case: Case, seconds: float) -> Result:
    """One program by both engines."""
    f, args = case.build()
    result = Result(case.name, samples=case.samples)
    onescan.clear_report()
    onescan.install()
    start = time.perf_counter()
    native = jax.jit(lambda *xs: f(*xs)).lower(*args).compile()
    result.compile_native = time.perf_counter() - start
    result.loops = [
        f"{row.name} ({row.length}): {row.reason or 'native'}"
        for row in onescan.report().rows
    ]
    onescan.uninstall()
    start = time.perf_counter()
    stock = jax.jit(lambda *xs: f(*xs)).lower(*args).compile()
    result.compile_stock = time.perf_counter() - start
    ours, theirs = (jax.tree.leaves(run(*args)) for run in (native, stock))
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True)]
    most = max(float(np.abs(b).max()) for _, b in pairs)
    result.difference = max(float(np.abs(a - b).max()) for a, b in pairs) / most
    total = sum(a.size for a, _ in pairs)
    result.equal = sum(int((a == b).sum()) for a, b in pairs) / total
    times = in_turns(
        {
            "stock": lambda: jax.block_until_ready(stock(*args)),
            "native": lambda: jax.block_until_ready(native(*args)),
        },
        seconds,
    )
    result.stock, result.native = times["stock"].seconds, times["native"].seconds
    return result


def table(results: list[Result]) -> Table:
    shown = Table(
        title=f"while loops, {jax.devices()[0].device_kind}, JAX {jax.__version__}"
    )
    for name in (
        "program",
        "stock",
        "onescan",
        "times",
        "differ",
        "same bits",
        "loops",
    ):
        shown.add_column(
            name, justify="left" if name in ("program", "loops") else "right"
        )
    for r in results:
        if r.trouble:
            shown.add_row(r.name, "", "", "", "", "", r.trouble)
            continue
        native = sum(loop.endswith("native") for loop in r.loops)
        per = lambda s, r=r: f" ({r.samples / s:,.0f}/s)" if r.samples else ""
        shown.add_row(
            r.name,
            f"{r.stock * 1e3:,.3g} ms{per(r.stock)}",
            f"{r.native * 1e3:,.3g} ms{per(r.native)}",
            f"{r.ratio:.3g}x",
            f"{r.difference:.1e}",
            f"{r.equal:.0%}",
            f"{native} of {len(r.loops)}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpu", action="store_true", help="the sizes of a GPU")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, rough times")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--json", type=Path, help="where to write all numbers")
    options = parser.parse_args()
    where = "gpu" if options.gpu else "cpu"
    sizes = (QUICK if options.quick else SIZES)[where]
    chosen = cases(sizes, 1000 if options.gpu or not options.quick else 100)
    warnings.simplefilter("error", onescan.EngineWarning)
    results, console = [], Console()
    for case in chosen:
        if options.only and not any(part in case.name for part in options.only):
            continue
        try:
            result = measured(case, 0.5 if options.quick else 3.0)
        except Exception as error:  # one program less, and the others go on
            result = Result(case.name, trouble=f"{type(error).__name__}: {error}"[:300])
        results.append(result)
        console.print(f"{case.name}: {result.ratio:.3g}x {result.trouble}")
        for loop in result.loops:
            console.print(f"    {loop}")
        if options.json:
            dicts = [asdict(r) | {"ratio": r.ratio} for r in results]
            options.json.write_text(json.dumps(dicts, indent=1))
    console.print(table(results))


if __name__ == "__main__":
    main()
