"""Grids whose positions look at their neighbours: stock JAX and onescan, in turns.

Every case runs under both engines, `auto` choosing for onescan as it does for users.
The results are compared, and then a step is timed.  On a GPU stock JAX also runs with
its loops in command buffers, and its better time counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rich.console import Console
from rich.table import Table
from timing import in_turns

import onescan

#: what XLA puts into command buffers by itself, and its loops
BUFFERS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,WHILE"
SLOWER = 0.95  # below this a case counts as slower
TOLERANCE = 1e-4
EXAMPLES = """
examples:
  python benchmarks/stencils.py                  every case
  python benchmarks/stencils.py --only gray      cases whose name contains this
  python benchmarks/stencils.py --quick          rough numbers
"""

Body = Callable[[Any], Any]


def neighbours(x: Any) -> Any:
    """The sum of the nearest positions, around the ends of every axis."""
    return sum(jnp.roll(x, way, axis) for axis in range(x.ndim) for way in (1, -1))


def gray_scott(state: Any) -> Any:
    u, v = state
    reaction = u * v * v
    u = u + 0.16 * (neighbours(u) - 4 * u) - reaction + 0.035 * (1 - u)
    v = v + 0.08 * (neighbours(v) - 4 * v) + reaction - 0.1 * v
    return u, v


def heat(x: Any) -> Any:
    """Insulated at its ends."""
    wide = jnp.pad(x, 1, mode="edge")
    around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2]
    return x + 0.2 * (around - 4 * x)


def wave(state: Any) -> Any:
    """Held at its ends."""
    before, now = state
    wide = jnp.pad(now, 1)
    around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2]
    return now, 2 * now - before + 0.1 * (around - 4 * now)


def jacobi(x: Any) -> Any:
    around = x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]
    return x.at[1:-1, 1:-1].set(0.25 * around)


def burgers(x: Any) -> Any:
    right, left = jnp.roll(x, -1), jnp.roll(x, 1)
    return x - 0.1 * x * (right - left) + 0.1 * (right - 2 * x + left)


def blur(x: Any) -> Any:
    weights = jnp.asarray([[1, 2, 1], [2, 4, 2], [1, 2, 1]], x.dtype) / 16
    wide = x[None, None]
    return lax.conv_general_dilated(wide, weights[None, None], (1, 1), "SAME")[0, 0]


def diffusion(x: Any) -> Any:
    return x + 0.1 * (neighbours(x) - 2 * x.ndim * x)


def life(x: Any) -> Any:
    ways = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    count = sum(jnp.roll(x, way, (0, 1)) for way in ways)
    return ((count == 3) | ((count == 2) & (x == 1))).astype(x.dtype)


def fields(state: Any) -> Any:
    """An electric and two magnetic fields, each by differences of the others."""
    e, h, g = state
    h = h + 0.5 * jnp.diff(e, axis=0, append=0)
    g = g - 0.5 * jnp.diff(e, axis=1, append=0)
    curl = jnp.diff(h, axis=0, prepend=0) - jnp.diff(g, axis=1, prepend=0)
    return e + 0.5 * curl, h, g


def flat(x: Any) -> Any:
    """By differences from one number to the next, whatever rows they are in."""
    return x + 0.1 * jnp.diff(x.reshape(-1), prepend=0).reshape(x.shape)


@dataclass(frozen=True)
class Case:
    name: str
    body: Body
    shape: tuple[int, ...]
    states: int = 1
    steps: int = 300
    dtype: str = "float32"
    batch: int = 0

    def build(self) -> tuple[Callable[..., Any], Any]:
        def run(state: Any) -> Any:
            step = lambda state, _: (self.body(state), None)
            return lax.scan(step, state, None, length=self.steps)[0]

        shape = (self.batch, *self.shape) if self.batch else self.shape
        draw = np.random.default_rng(0)
        states = [draw.uniform(0, 1, shape) for _ in range(self.states)]
        if self.dtype.startswith("int"):
            states = [np.round(x) for x in states]
        state = tuple(jnp.asarray(x, self.dtype) for x in states)
        run_all = jax.vmap(run) if self.batch else run
        return run_all, state if self.states > 1 else state[0]


CASES = [
    *(Case(f"gray-scott {n}", gray_scott, (n, n), 2) for n in (32, 64, 128, 256)),
    Case("gray-scott 512", gray_scott, (512, 512), 2, steps=60),
    Case("gray-scott 128, 8 of them", gray_scott, (128, 128), 2, 100, batch=8),
    Case("gray-scott 64, 64 of them", gray_scott, (64, 64), 2, 50, batch=64),
    Case("heat 128", heat, (128, 128)),
    Case("heat 100", heat, (100, 100)),
    Case("heat 1024", heat, (1024, 1024), steps=30),
    Case("wave 200", wave, (200, 200), 2),
    Case("jacobi 128", jacobi, (128, 128)),
    Case("jacobi 256", jacobi, (256, 256)),
    Case("burgers 4096", burgers, (4096,)),
    Case("burgers 100000", burgers, (100_000,), steps=100),
    Case("blur 128", blur, (128, 128)),
    Case("diffusion 32^3", diffusion, (32, 32, 32)),
    Case("diffusion 64^3", diffusion, (64, 64, 64), steps=50),
    Case("life 128", life, (128, 128), dtype="int32"),
    Case("life 8 x 8, 64 of them", life, (8, 8), dtype="int32", batch=64),
    Case("life 16, 32 of them", life, (16, 16), dtype="int32", batch=32),
    Case("diffusion 16, 32 of them", diffusion, (16, 16), batch=32),
    Case("diffusion 6 x 12, 128 of them", diffusion, (6, 12), batch=128),
    Case("diffusion 300 x 17", diffusion, (300, 17)),
    Case("fields 33 x 65", fields, (33, 65), 3),
    Case("fields 100", fields, (100, 100), 3),
    Case("flat 100 x 5", flat, (100, 5)),
    Case("flat 64 x 7", flat, (64, 7)),
]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--native", action="store_true", help="kernels in any case")
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    onescan.install()
    console = Console(width=110)
    table = Table("grid", "stock", "onescan", "faster", "differs by", "engine")
    failed = 0
    for case in CASES:
        if not any(part in case.name for part in options.only):
            continue
        row, well = measured(case, options.quick, options.native)
        failed += not well
        console.print(*row, soft_wrap=True)
        table.add_row(*row)
    console.print(table)
    console.print(f"{failed} cases wrong, or below {SLOWER}x")
    return 1 if failed else 0


def measured(case: Case, quick: bool, native: bool) -> tuple[list[str], bool]:
    run, state = case.build()
    engine = "native" if native else "auto"
    gpu = jax.default_backend() == "gpu"
    settings: dict[str, tuple[str, Any]] = {"stock": ("xla", None)}
    if gpu:
        graphs = {"xla_gpu_enable_command_buffer": BUFFERS}
        settings["graphs"] = "xla", graphs
    settings["onescan"] = engine, None
    onescan.clear_report()
    calls = {}
    for name, (chosen, flags) in settings.items():
        start = time.perf_counter()
        try:
            with onescan.engine(chosen):
                lowered = jax.jit(lambda state: run(state)).lower(state)
                calls[name] = partial(lowered.compile(flags), state)
        except onescan.EngineError as error:
            return [case.name, "", "", "", "", str(error)[:60]], True
        if time.perf_counter() - start > 20:
            Console().print(f"{case.name}: {name} compiled long")
    pair = [jax.tree.leaves(jax.device_get(calls[n]())) for n in ("onescan", "stock")]
    wrong = max(
        float(np.max(np.abs(a - b))) / (float(np.max(np.abs(b))) + 1e-9)
        for a, b in zip(*pair, strict=True)
    )
    timings = in_turns(calls, 0.15 if quick else 0.6, jax.block_until_ready)
    times = {name: t.seconds / case.steps for name, t in timings.items()}
    ours = times.pop("onescan")
    stock = min(times.values())
    (row,) = onescan.report().rows
    well = wrong <= TOLERANCE and stock / ours >= SLOWER
    told = " / ".join(f"{1e6 * t:.2f}" for t in times.values())
    return [
        case.name,
        f"{told} us",
        f"{1e6 * ours:.2f} us",
        f"{stock / ours:.2f}x",
        f"{wrong:.0e}",
        str(row.engine),
    ], well


if __name__ == "__main__":
    raise SystemExit(main())
