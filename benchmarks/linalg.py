"""Small matrices in the body of a loop: a kernel of onescan and XLA's libraries.

Each loop is compiled by both engines, their results are compared, and they are timed in
turns.  Times are those of one step.

examples:
  python benchmarks/linalg.py                            all sizes, a minute
  python benchmarks/linalg.py --quick                    some of them
  python benchmarks/linalg.py --complex --only qr eigh   of complex matrices
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rich.console import Console
from rich.table import Table

import onescan

SIZES = (2, 4, 8, 16, 32, 64)
QUICK = (4, 16)
BATCHES = (1, 1000)
#: seconds that the timing of one loop may take
SECONDS = 0.3


def cholesky(c: Any, s: Any, b: Any) -> Any:
    return lax.linalg.cholesky(s + 1e-3 * c, symmetrize_input=False)


def triangular(c: Any, s: Any, b: Any) -> Any:
    return 0.5 * lax.linalg.triangular_solve(s, c + b, left_side=True, lower=True)


def lu(c: Any, s: Any, b: Any) -> Any:
    return lax.linalg.lu(b + 1e-3 * c)[0]


def qr(c: Any, s: Any, b: Any) -> Any:
    return jnp.linalg.qr(b + 1e-3 * c)[1]


def eigh(c: Any, s: Any, b: Any) -> Any:
    values, vectors = jnp.linalg.eigh(s + 1e-3 * c, symmetrize_input=False)
    return (vectors * jnp.abs(values)) @ vectors.conj().T


def svd(c: Any, s: Any, b: Any) -> Any:
    left, values, right = jnp.linalg.svd(b + 1e-3 * c)
    return (left * jnp.sqrt(values)) @ right


def solve(c: Any, s: Any, b: Any) -> Any:
    return 0.5 * jnp.linalg.solve(s, c + b)


def kalman(c: Any, s: Any, b: Any) -> Any:
    """The covariance of a Kalman filter, with as many observations as states."""
    n = c.shape[-1]
    ahead = 0.25 * b @ c @ b.T / n + jnp.eye(n)
    seen = jax.scipy.linalg.cho_factor(ahead + s)
    gain = jax.scipy.linalg.cho_solve(seen, ahead).T
    return ahead - gain @ (ahead + s) @ gain.T


LOOPS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (cholesky, triangular, lu, qr, eigh, svd, solve, kalman)
}


def arguments(n: int, batch: int, dtype: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, batch, n, n)).astype(dtype)
    if dtype == "complex64":
        a, b = (x + 1j * rng.normal(size=x.shape).astype(np.float32) for x in (a, b))
    s = a @ np.swapaxes(a.conj(), 1, 2) / n + np.eye(n, dtype=dtype)
    return jnp.asarray(s), jnp.asarray(b)


def measured(
    f: Callable[..., Any], n: int, batch: int, dtype: str
) -> tuple[float, float, float]:
    """Seconds of a step by onescan and by XLA, and how far apart they end."""
    steps = max(10, min(500, 20000 // (batch * n)))
    args = arguments(n, batch, dtype)
    if batch == 1:
        args = tuple(x[0] for x in args)

    def run(s: Any, b: Any) -> Any:
        return onescan.scan(lambda c, _: (f(c, s, b), None), s, None, length=steps)[0]

    function = run if batch == 1 else jax.vmap(run)
    compiled = {}
    for engine in ("native", "xla"):
        with onescan.engine(engine):
            compiled[engine] = jax.jit(function).lower(*args).compile()
    ours, theirs = (np.asarray(compiled[e](*args)) for e in ("native", "xla"))
    apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
    best = dict.fromkeys(compiled, np.inf)
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        for engine, call in compiled.items():
            before = time.perf_counter()
            jax.block_until_ready(call(*args))
            best[engine] = min(best[engine], time.perf_counter() - before)
    return best["native"] / steps, best["xla"] / steps, float(apart)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--complex", action="store_true", help="of complex matrices")
    parser.add_argument("--only", choices=LOOPS, nargs="*", default=LOOPS)
    options = parser.parse_args()
    quick, dtype = options.quick, "complex64" if options.complex else "float32"
    table = Table(title=f"us of a step on {jax.devices()[0].device_kind}, {dtype}")
    for name in ("loop", "matrices", "n", "onescan", "XLA", "faster", "differs by"):
        table.add_column(name, justify="left" if name == "loop" else "right")
    worst = 0.0
    for name in options.only:
        f = LOOPS[name]
        for batch in BATCHES:
            for n in QUICK if quick else SIZES:
                if n * batch > 20000:
                    continue
                try:
                    ours, theirs, apart = measured(f, n, batch, dtype)
                except onescan.EngineError:  # a library does as well
                    table.add_row(name, str(batch), str(n), "", "", "", "")
                    continue
                worst = max(worst, apart)
                numbers = f"{ours * 1e6:.2f}", f"{theirs * 1e6:.2f}"
                ratio, differs = f"{theirs / ours:.2f}x", f"{apart:.0e}"
                table.add_row(name, str(batch), str(n), *numbers, ratio, differs)
    Console().print(table)
    return int(worst > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
