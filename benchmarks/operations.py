"""Operations one by one: nanoseconds of a step by our kernels and by XLA.

Each is the body of a loop over a vector of 2,048 numbers, or over a matrix; the time of
a step is the slope between two lengths.  Kernels are not chosen but forced, so an
operation that is slower here is one to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from chosen import chosen
from jax import lax
from rich.console import Console
from rich.table import Table
from timing import in_turns

import onescan

SIZE = 2048
SHORT, LONG = 100, 900
ENGINES = "xla", "native"
SECONDS = 0.2  # for each
EXAMPLES = """
examples:
  python benchmarks/operations.py                   all of them, two minutes
  python benchmarks/operations.py --only flip mod   those whose name contains this
"""

Step = Callable[[Any], Any]


def operations() -> dict[str, tuple[Any, Step]]:
    """By name, where a loop begins and what a step does."""
    x = jnp.linspace(-0.95, 0.95, SIZE)
    i = jnp.arange(SIZE, dtype=jnp.int32) * 7919
    rows = x.reshape(32, 64)
    far = jnp.arange(SIZE) * 5 % SIZE
    matrix = jnp.sin(jnp.arange(1e6).reshape(1000, 1000)) / 25
    vector, half = x[:1000], (x[:1024].reshape(8, 128)).astype("float16")
    weights = matrix[:128, :128].astype("float16")
    slowly = lambda f: lambda c: c + f(c) * 0.01
    functions: dict[str, Step] = {
        "tanh": jnp.tanh,
        "logistic": jax.nn.sigmoid,
        "exp": lambda c: jnp.exp(-c * c),
        "log": lambda c: jnp.log(c * c + 0.1),
        "log1p": lambda c: jnp.log1p(jnp.abs(c)),
        "sin": jnp.sin,
        "erf": lax.erf,
        "erf_inv": lambda c: lax.erf_inv(c * 0.9),
        "sqrt": lambda c: jnp.sqrt(c * c + 0.1),
        "rsqrt": lambda c: lax.rsqrt(c * c + 0.1),
        "divide": lambda c: 1 / (c * c + 0.1),
        "pow": lambda c: (c * c + 0.1) ** 1.7,
        "mod": lambda c: jnp.mod(c * 7.0, 3.0),
        "atan2": lambda c: jnp.arctan2(c, c + 1.0),
        "to int32": lambda c: (c * 100).astype(jnp.int32).astype(c.dtype),
        "to uint8": lambda c: (c * 100).astype(jnp.uint8).astype(c.dtype),
    }
    steps: dict[str, tuple[Any, Step]] = {
        "integer division": (i, lambda c: c // (i + 1) + i),
        "integer remainder": (i, lambda c: c % 7 + i),
        "bfloat16 multiply-add": (x.astype("bfloat16"), lambda c: c * c + c),
        "where": (x, lambda c: jnp.where(c > 0.1, c * 0.9, c + 0.1)),
        "flip": (x, lambda c: c[::-1] * 0.99),
        "roll": (x, lambda c: jnp.roll(c, 1) * 0.99),
        "tile": (x, lambda c: jnp.tile(c[:999], 3)[:SIZE] * 0.99),
        "repeat": (x, lambda c: jnp.repeat(c, 2)[:SIZE] * 0.99),
        "turned rows, flat": (x, lambda c: c.reshape(32, 64)[::-1].reshape(-1) * 0.99),
        "transpose": (matrix[:100, :100], lambda c: c.T * 0.99),
        "matrix @ vector": (vector, lambda c: jnp.tanh(matrix @ c)),
        "vector @ matrix": (vector, lambda c: jnp.tanh(c @ matrix)),
        "float16 product": (half, lambda c: jnp.tanh(c @ weights)),
        "every second": (x, lambda c: c.at[: SIZE // 2].set(c[::2] * 0.99)),
        "gather": (x, lambda c: c[far] * 0.99),
        "gather by data": (x, lambda c: c[(jnp.abs(c) * 2000).astype(int)] * 0.99),
        "scatter": (x, lambda c: c.at[far[:64]].add(0.1) * 0.99),
        "sum": (x, lambda c: c + c.sum() * 1e-6),
        "largest": (x, lambda c: c * 0.9 + c.max() * 0.01),
        "argmax": (x, lambda c: c.at[jnp.argmax(c)].add(-0.1)),
        "cumsum": (x, lambda c: jnp.cumsum(c) * 1e-3),
        "sort": (x, lambda c: jnp.sort(c) + x * 0.1),
        "softmax of rows": (rows, lambda c: jax.nn.softmax(c * 1.1)),
        "means of columns": (rows, lambda c: c * 0.9 + c.mean(0) * 0.1),
        "mean of a matrix": (rows, lambda c: c * 0.9 + c.mean() * 0.1),
        "product": (rows, lambda c: jnp.tanh(c @ rows.T @ rows * 1e-2)),
        "convolution": (x, lambda c: jnp.convolve(c, jnp.ones(5) / 5, "same")),
    }
    return {name: (x, slowly(f)) for name, f in functions.items()} | steps


def nanoseconds(step: Step, start: Any) -> dict[str, float]:
    """Of one step, by engine."""
    runs = {}
    for engine in ENGINES:
        for length in (SHORT, LONG):
            loop = lambda c, n=length: onescan.scan(
                lambda c, _: (step(c), None), c, None, n
            )
            with onescan.engine(engine):
                compiled = jax.jit(loop).lower(start).compile()
            runs[engine, length] = lambda f=compiled: jax.block_until_ready(f(start))
    least = {k: taken.fastest for k, taken in in_turns(runs, SECONDS).items()}
    return {
        engine: 1e9 * (least[engine, LONG] - least[engine, SHORT]) / (LONG - SHORT)
        for engine in ENGINES
    }


def main() -> None:
    asked = chosen(operations, __doc__, EXAMPLES)
    table = Table("operation", box=None)
    for title in ("XLA, ns", "onescan, ns", "times as fast"):
        table.add_column(title, justify="right")
    console = Console()
    with console.status("compiling and timing") as status:
        for name, (start, step) in asked.items():
            status.update(name)
            xla, ours = nanoseconds(step, start).values()
            ratio = xla / max(ours, 1e-3)
            style = "red" if ratio < 0.9 else ""
            table.add_row(
                name, f"{xla:,.0f}", f"{ours:,.0f}", f"{ratio:.2f}", style=style
            )
    console.print(table)


if __name__ == "__main__":
    main()
