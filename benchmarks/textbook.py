"""Loops of textbooks under both engines, forward and backward.

``python benchmarks/textbook.py``: the loops of `textbook_loops.py` as they stand there,
each compiled by stock JAX and by onescan, and run in turns.  ``--grad`` measures their
gradients.  Loops below 0.95x of stock are listed at the end.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from rich import box
from rich.console import Console
from rich.table import Table
from table import SLOWER, geometric_mean
from textbook_loops import LOOPS, Loop
from timing import in_turns

import onescan

ENGINES = {"stock": "xla", "onescan": "auto"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="loops whose name contains this")
    parser.add_argument("--grad", action="store_true", help="their gradients")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each engine")
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)  # nothing was kept
    onescan.install()
    names = [
        n for n in LOOPS if not options.names or any(q in n for q in options.names)
    ]
    table = Table("loop", *ENGINES, "faster", "compile", box=box.SIMPLE_HEAD)
    console = Console(width=100)
    ratios = {}
    for name in names:
        step, carry, xs, length = LOOPS[name]
        if options.grad and not _has_gradient(LOOPS[name]):
            continue
        times, compiling = measured((step, carry, xs, length), options)
        ratios[name] = times["stock"] / times["onescan"]
        later = compiling["onescan"] / compiling["stock"]
        shown = [f"{seconds * 1e6:.0f} us" for seconds in times.values()]
        table.add_row(name, *shown, f"{ratios[name]:.2f}x", f"{later:.2f}x")
        console.print(f"{name}: {ratios[name]:.2f}x")
    console.print(table)
    slower = [name for name, ratio in ratios.items() if ratio < SLOWER]
    mean = geometric_mean(list(ratios.values()))
    console.print(f"{len(ratios)} loops, geometric mean {mean:.2f}x; below: {slower}")
    return 0


def measured(loop: Loop, options: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of a call and of compiling, by engine."""
    _, carry, xs, _ = loop
    run = _gradient(loop) if options.grad else _forward(loop)
    runs, compiling = {}, {}
    for name, engine in ENGINES.items():
        jax.clear_caches()
        start = time.perf_counter()
        with onescan.engine(engine):
            compiled = jax.jit(lambda *args: run(*args)).lower(carry, xs).compile()
        compiling[name] = time.perf_counter() - start
        runs[name] = lambda f=compiled: jax.block_until_ready(f(carry, xs))
    timings = in_turns(runs, options.seconds)
    return {name: timing.seconds for name, timing in timings.items()}, compiling


def _forward(loop: Loop) -> Any:
    step, _, _, length = loop
    return lambda carry, xs: lax.scan(step, carry, xs, length=length)


def _gradient(loop: Loop) -> Any:
    """Of the squares of all results, by the carry."""
    forward = _forward(loop)

    def loss(carry: Any, xs: Any) -> Any:
        leaves = jax.tree.leaves(forward(carry, xs))
        return sum((leaf**2).sum() * 1e-3 for leaf in leaves if _is_real(leaf))

    return jax.grad(loss)


def _has_gradient(loop: Loop) -> bool:
    """Whether the carry is one of real numbers, and no while loop is inside."""
    _, carry, xs, _ = loop
    if not _is_real(carry):
        return False
    try:
        jax.eval_shape(_gradient(loop), carry, xs)
    except ValueError:
        return False
    return True


def _is_real(tree: Any) -> bool:
    leaves = jax.tree.leaves(tree)
    return all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves)


if __name__ == "__main__":
    sys.exit(main())
