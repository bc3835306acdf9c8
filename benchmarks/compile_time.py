"""How long loops take to compile, under stock JAX and as kernels.

``python benchmarks/compile_time.py``: bodies that are long, deep, or repeat themselves.
The last two columns are what the compile budget (`onescan/emit/budget.py`) and the
memory guard (`onescan/runtime/memory.py`) count: instructions, and bytes of IR.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax import lax
from rich import print as show
from rich.table import Table

import onescan
from onescan.emit import budget
from onescan.targets.cpu import kernel as cpu


def chain(n: int, width: int, op: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def body(c: Any, x: Any) -> Any:
        for _ in range(n):
            c = op(c) * 0.9 + x
        return c, c

    return lambda x: lax.scan(body, jnp.ones(width or ()), x)


def nested(depth: int) -> Callable[[Any], Any]:
    if depth == 0:
        return lambda c: jnp.sin(c) * 0.9 + 0.1
    return lambda c: lax.scan(lambda c, _: (nested(depth - 1)(c), None), c, None, 4)[0]


def sorting(*shape: int) -> Callable[[Any], Any]:
    body = lambda c, x: (jnp.sort(jnp.sin(c + x)), c.ravel()[0])
    return lambda x: lax.scan(body, jnp.ones(shape), x)


LOOPS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "60 sines over 33 numbers": (chain(60, 33, jnp.sin), jnp.ones(50)),
    "400 products and sums": (chain(400, 33, lambda c: c), jnp.ones(50)),
    "six nested scans of four steps": (nested(6), jnp.float32(0.3)),
    "sort of 64": (sorting(64), jnp.ones(100)),
    "sort of 16 x 32": (sorting(16, 32), jnp.ones(100)),
}


def seconds(engine: Any, f: Callable[[Any], Any], x: Any) -> float:
    with onescan.engine(engine):
        start = time.perf_counter()
        jax.jit(lambda x: f(x)).lower(x).compile()
        return time.perf_counter() - start


def size(f: Callable[[Any], Any], x: Any) -> tuple[int, int]:
    """Instructions and bytes of a loop's kernel."""
    with (
        onescan.engine("native"),
        mock.patch.object(cpu, "code", wraps=cpu.code) as made,
    ):
        jax.jit(lambda x: f(x)).lower(x)
    module = made.call_args.args[0].module
    return budget.instructions(module), len(str(module))


def main() -> None:
    onescan.install()
    table = Table("loop", "stock [s]", "onescan [s]", "allowed [s]", "code", "bytes")
    seconds("native", chain(1, 0, jnp.sin), jnp.ones(2))
    for name, (f, x) in LOOPS.items():
        # once, because a process makes the code of a kernel only once
        stock, ours = (seconds(engine, f, x) for engine in ("xla", "auto"))
        times = [f"{t:.2f}" for t in (stock, ours, 2 * stock + 0.1)]
        table.add_row(name, *times, *(f"{n:,}" for n in size(f, x)))
    show(table)


if __name__ == "__main__":
    main()
