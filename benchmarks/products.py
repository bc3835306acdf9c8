"""Products beside a loop and in its steps: by XLA, our vectors, x86's matrix unit.

All compute the same float32 product, in turns in this one process.  The first table has
the thousand million multiply-adds a second of each, and how far its results are from
exact ones, in parts of 2**-24 of the sum of all absolute values; the second one those
of recurrent loops, whose steps wait for each other.  The third has layers of int8.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from timing import in_turns

import onescan
from onescan.passes.products import product
from onescan.targets.cpu import machine, products  # noqa: F401 (its lowering)

#: rows, columns, contracted, and whether x comes with the contraction first: the
#: products of gradients of recurrent cells
SHAPES = [
    (6400, 768, 256, False),
    (256, 768, 6400, True),
    (6400, 1024, 256, False),
    (256, 1024, 6400, True),
]
#: of loops `h = tanh(h @ w + x)`: batch, and size of h
STEPS = [(16, 128), (64, 128), (64, 256), (256, 256), (64, 512)]
LENGTH = 50
#: of quantised layers: rows, and size
LAYERS = [(8, 512), (16, 256), (32, 64), (64, 256), (128, 128)]
DEPTH = 8
HOW = {"precision": None, "preferred_element_type": None}


def engines(contracted: tuple[int, int]) -> dict[str, Any]:
    """The same product in three ways, each with the machine it is compiled for."""
    host = machine.host()
    numbers = (((contracted[0],), (contracted[1],)), ((), ()))
    ours = lambda x, y: product(x, y, contracted, HOW)
    ways = {"XLA": (host, lambda x, y: jax.lax.dot_general(x, y, numbers))}
    ways["vectors"] = (replace(host, features=host.features - {"amx"}), ours)
    if "amx" in host.features:
        ways["matrix unit"] = (host, ours)
    return ways


def measured(shape: tuple[int, int, int, bool], seconds: float) -> list[str]:
    """A row of the table."""
    rows, columns, depth, transposed = shape
    rng = np.random.default_rng(0)
    x, y = (
        rng.standard_normal(s).astype(np.float32)
        for s in ((rows, depth), (depth, columns))
    )
    some = x[:64].astype(np.float64)
    exact, size = some @ y.astype(np.float64), np.abs(some) @ np.abs(y)
    left = jnp.asarray(np.ascontiguousarray(x.T) if transposed else x)
    right = jnp.asarray(y)
    calls, errors = {}, {}
    for name, (meant, way) in engines((0 if transposed else 1, 0)).items():
        with patch.object(machine, "host", lambda meant=meant: meant):
            calls[name] = jax.jit(lambda x, y, way=way: way(x, y))
            found = np.asarray(calls[name](left, right))[:64]
        errors[name] = float(np.max(np.abs(found - exact) / size) * 2**24)
    wait = lambda call: call(left, right).block_until_ready()
    runs = {name: partial(wait, call) for name, call in calls.items()}
    times = in_turns(runs, seconds)
    work = rows * columns * depth / 1e9
    cells = [
        f"{work / times[name].seconds:.0f} ({errors[name]:.1f})"
        if name in times
        else "none here"
        for name in ("XLA", "vectors", "matrix unit")
    ]
    how = "x.T @ y" if transposed else "x @ y"
    return [f"{how}, {rows} by {columns}, sums of {depth}", *cells]


def measured_steps(batch: int, size: int, seconds: float) -> list[str]:
    """A row of the second table."""
    host = machine.host()
    vectors = replace(host, features=host.features - {"amx"})
    ways = {"vectors": vectors}
    if "amx" in host.features:
        ways["matrix unit"] = host
    normal = np.random.default_rng(0).standard_normal
    args = [
        jnp.asarray(normal(shape), jnp.float32) * size**-0.5
        for shape in ((size, size), (batch, size), (LENGTH, batch, size))
    ]

    def loop(w: Any, h: Any, xs: Any) -> Any:
        step = lambda h, x: (jnp.tanh(h @ w + x), None)
        return onescan.scan(step, h, xs)[0]

    rates = rates_of(loop, args, ways, LENGTH * batch * size**2, seconds)
    cells = [rates.get(name, "none here") for name in ("XLA", "vectors", "matrix unit")]
    return [f"{batch} by {size} by {size}", *cells]


def measured_bytes(rows: int, size: int, seconds: float) -> list[str]:
    """A row of the third table."""
    host = machine.host()
    left_out = {"one": {"pairs", "quads"}, "two": {"quads"}, "four": set()}
    ways = {
        name: replace(host, features=host.features - fewer)
        for name, fewer in left_out.items()
        if name == "one" or (left_out["one"] - fewer) & host.features
    }
    random = np.random.default_rng(0)
    args = [
        jnp.asarray(random.integers(-128, 128, shape, np.int8))
        for shape in ((rows, size), (DEPTH, size, size))
    ]

    def loop(x: Any, w: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            numbers = ((1,), (0,)), ((), ())
            total = jax.lax.dot_general(x, w, numbers, preferred_element_type=jnp.int32)
            return (total >> 7).astype(jnp.int8), None

        return onescan.scan(layer, x, w)[0]

    rates = rates_of(loop, args, ways, DEPTH * rows * size**2, seconds)
    cells = [rates.get(name, "none here") for name in ("XLA", *left_out)]
    return [f"{rows} by {size} by {size}", *cells]


def rates_of(
    loop: Any, args: Any, ways: dict[str, Any], work: int, seconds: float
) -> dict[str, str]:
    """Thousand million operations a second, by XLA and by kernels for some machines."""
    host = machine.host()
    engines = {"XLA": ("xla", host)}
    engines |= {name: ("native", meant) for name, meant in ways.items()}
    runs = {}
    for name, (engine, meant) in engines.items():
        here = patch.object(machine, "host", lambda meant=meant: meant)
        with here, onescan.engine(engine):
            call = jax.jit(lambda *args: loop(*args)).lower(*args).compile()
        runs[name] = lambda call=call: call(*args).block_until_ready()
    times = in_turns(runs, seconds)
    return {name: f"{work / 1e9 / time.seconds:.0f}" for name, time in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1, help="for each (1)")
    options = parser.parse_args()
    table = Table("product", "XLA", "vectors", "matrix unit")
    table.caption = "thousand million multiply-adds a second (largest error)"
    for shape in SHAPES:
        table.add_row(*measured(shape, options.seconds))
    Console().print(table)
    table = Table("product in each step", "XLA", "vectors", "matrix unit")
    table.caption = "thousand million multiply-adds a second"
    for batch, size in STEPS:
        table.add_row(*measured_steps(batch, size, options.seconds))
    Console().print(table)
    table = Table("layers of int8, by terms at a time", "XLA", "one", "two", "four")
    table.caption = "thousand million multiply-adds a second"
    for rows, size in LAYERS:
        table.add_row(*measured_bytes(rows, size, options.seconds))
    Console().print(table)


if __name__ == "__main__":
    main()
