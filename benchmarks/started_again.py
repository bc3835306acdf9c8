"""How long a program takes to start: the first time, and in the next process.

``python benchmarks/started_again.py``: programs of `benchmarks/programs.py`, each in
processes of its own, with JAX's cache of compiled programs turned on and empty at
first.  Seconds from tracing to the first result, imports and data left out; those of
the second start are the median of ``--repeats``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

NAMES = (
    *("mlp/optax", "nnx/lstm", "ppo/16", "numpyro/eight schools"),
    *("dynamax/lgssm smoother", "sinkhorn/64 grad", "mamba/grad", "decode/1"),
)
ENGINES = "xla", "auto"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs (programs.py --list)")
    parser.add_argument("--repeats", type=int, default=3, help="second starts")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(seconds(*options.inside))
        return 0
    columns = "program", "stock", "again", "onescan", "again", "ratio", "ratio again"
    table = Table(*columns, box=box.SIMPLE_HEAD, caption="seconds to the first result")
    console = Console(width=110)
    for name in options.names or NAMES:
        first, again = {}, {}
        for engine in ENGINES:
            with tempfile.TemporaryDirectory() as folder:
                first[engine] = started(name, engine, folder)
                later = [started(name, engine, folder) for _ in range(options.repeats)]
                again[engine] = median(later)
        times = [f"{t[e]:.2f} s" for e in ENGINES for t in (first, again)]
        ratios = [f"{t['auto'] / t['xla']:.2f}x" for t in (first, again)]
        console.print(" ".join([name, *times, *ratios]))
        table.add_row(name, *times, *ratios)
    console.print(table)
    return 0


def started(name: str, engine: str, folder: str) -> float:
    """Seconds of one start in a process of its own, with caches in a folder."""
    kept = {
        "JAX_COMPILATION_CACHE_DIR": os.path.join(folder, "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "XDG_CACHE_HOME": folder,
    }
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, __file__, "--inside", name, engine],
        env={**os.environ, **kept, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def seconds(name: str, engine: str) -> float:
    """From tracing to the first result of a program, in this process."""
    import time

    import jax
    from programs import PROGRAMS

    import onescan

    program = next(p for p in PROGRAMS if p.name == name)
    onescan.install()
    exact = jax.enable_x64(True) if program.x64 else nullcontext()
    with exact, onescan.engine(engine):
        fn, args = program.build()
        jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))  # the device is there
        start = time.perf_counter()
        jax.block_until_ready(jax.jit(lambda *args: fn(*args))(*args))
        return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
