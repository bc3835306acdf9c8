"""How long loops take to compile, under stock JAX and as kernels.

``python benchmarks/compile_time.py``: bodies that are long, deep, or repeat themselves.
Seconds are those until the first result, less those of a later call, because a GPU's
driver compiles a kernel when it is first launched; each is the least of three loops
that differ in one constant.  ``--quick`` takes one.

The last two columns are what the compile budget (`onescan/emit/budget.py`) and the
memory guard (`onescan/runtime/memory.py`) count: instructions, and bytes of IR.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax import lax
from rich.console import Console
from rich.table import Table

import onescan
from onescan.emit import budget
from onescan.errors import EngineError
from onescan.targets.cpu import kernel as cpu
from onescan.targets.nvidia import launch

Function = Callable[[Any], Any]
#: from a small number, which makes it a loop of its own
Maker = Callable[[float], Function]
#: seconds that a loop may take longer than twice stock's
SPARE = 0.1


def chain(n: int, width: int, op: Callable[[Any], Any]) -> Maker:
    def make(small: float) -> Function:
        def body(c: Any, x: Any) -> Any:
            for _ in range(n):
                c = op(c) * (0.9 - small) + x
            return c, c

        return lambda x: lax.scan(body, jnp.ones(width or ()), x)

    return make


def nested(depth: int) -> Maker:
    def level(depth: int, small: float) -> Function:
        if depth == 0:
            return lambda c: jnp.sin(c) * 0.9 + small
        inner = level(depth - 1, small)
        return lambda c: lax.scan(lambda c, _: (inner(c), None), c, None, 4)[0]

    return lambda small: level(depth, small)


def repeated(f: Callable[[Any], Any], *shape: int) -> Maker:
    """A body that is one operation on a carry of a shape."""

    def make(small: float) -> Function:
        body = lambda c, x: (f(jnp.sin(c + x) * (1 - small)), c.ravel()[0])
        return lambda x: lax.scan(body, jnp.ones(shape), x)

    return make


def definite(c: Any) -> Any:
    n = c.shape[-1]
    return c @ jnp.swapaxes(c, -1, -2) / n + jnp.eye(n)


def dominant(c: Any) -> Any:
    return c / c.shape[-1] + 2 * jnp.eye(c.shape[-1])


def stencil(c: Any) -> Any:
    window = jnp.ones((1, 1, 5, 5)) / 25
    return lax.conv_general_dilated(c[None, None], window, (1, 1), "SAME")[0, 0]


STEPS = jnp.ones(100)
LOOPS: dict[str, tuple[Maker, Any]] = {
    "60 sines over 33 numbers": (chain(60, 33, jnp.sin), jnp.ones(50)),
    "150 sines over 33 numbers": (chain(150, 33, jnp.sin), jnp.ones(50)),
    "400 products and sums": (chain(400, 33, lambda c: c), jnp.ones(50)),
    "2000 products and sums": (chain(2000, 0, lambda c: c), jnp.ones(50)),
    "six nested scans of four steps": (nested(6), jnp.float32(0.3)),
    "sort of 64": (repeated(jnp.sort, 64), STEPS),
    "sort of 16 x 32": (repeated(jnp.sort, 16, 32), STEPS),
    "sort of 3000": (repeated(jnp.sort, 3000), STEPS),
    "top_k of 1000": (
        repeated(lambda c: c.at[:5].set(lax.top_k(c, 5)[0]), 1000),
        STEPS,
    ),
    "cholesky of 64 x 64": (
        repeated(lambda c: jnp.linalg.cholesky(definite(c)), 64, 64),
        STEPS,
    ),
    "solve of 8 x (32 x 32)": (
        repeated(lambda c: jnp.linalg.solve(dominant(c), c), 8, 32, 32),
        STEPS,
    ),
    "qr of 8 x (16 x 16)": (
        repeated(lambda c: jnp.linalg.qr(dominant(c))[1], 8, 16, 16),
        STEPS,
    ),
    "5 x 5 stencil on 64 x 64": (repeated(stencil, 64, 64), STEPS),
}


def seconds(engine: Any, f: Function, x: Any) -> float:
    with onescan.engine(engine):
        start = time.perf_counter()
        compiled = jax.jit(lambda x: f(x)).lower(x).compile()
        times = [time.perf_counter() - start]
        for _ in range(3):
            times.append(_called(compiled, x))
        return times[0] + times[1] - min(times[1:])


def _called(compiled: Any, x: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(compiled(x))
    return time.perf_counter() - start


def size(f: Function, x: Any) -> list[str]:
    """Instructions and bytes of a loop's kernel, where it can have one."""
    with (
        onescan.engine("native"),
        mock.patch.object(cpu, "code", wraps=cpu.code) as on_cpu,
        mock.patch.object(launch, "lowering", wraps=launch.lowering) as on_gpu,
        mock.patch("onescan.targets.cpu.target.code", on_cpu),
    ):
        try:
            jax.jit(lambda x: f(x)).lower(x)
        except EngineError:
            return ["-", "-"]
    made = on_gpu if on_gpu.called else on_cpu
    module = made.call_args.args[0].module
    return [f"{n:,}" for n in (budget.instructions(module), len(str(module)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="each loop once")
    parser.add_argument("--only", default="", help="loops with this in their name")
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)  # nothing was kept
    onescan.install()
    columns = ("loop", "stock [s]", "onescan [s]", "allowed [s]", "engine", "code")
    table = Table(*columns, "bytes")
    seconds("native", chain(1, 0, jnp.sin)(0.0), jnp.ones(2))
    over = 0
    for name, (make, x) in LOOPS.items():
        if options.only not in name:
            continue
        taken: dict[str, float] = {}
        for k in range(1 if options.quick else 3):
            for engine in ("xla", "auto"):
                onescan.clear_report()
                found = seconds(engine, make(0.001 * (k + 1)), x)
                taken[engine] = min(found, taken.get(engine, found))
        ran = {row.engine for row in onescan.report().rows}
        stock, ours = taken["xla"], taken["auto"]
        allowed = 2 * stock + SPARE
        over += ours > allowed
        times = [f"{t:.2f}" for t in (stock, ours, allowed)]
        style = "red" if ours > allowed else None
        numbers = size(make(0.0), x)
        table.add_row(name, *times, " ".join(sorted(ran)), *numbers, style=style)
    console = Console(width=110)
    console.print(table)
    console.print(f"{jax.default_backend()}: {over} of {table.row_count} over")


if __name__ == "__main__":
    main()
