"""Random loops without end: `make fuzz`, or ``scripts/fuzz.py --minutes 60 --seed 7``.

With ``--loops 5000`` it ends after so many; on a machine with a GPU it runs there.

Each seed is a batch of loops compiled together, run under the native engine, stock
`jax.lax.scan` and the plain Python loop.  A failure is printed with its seed and the
smallest loop that still fails, as a program to run; the run then goes on.  Loops that
the engine leaves to XLA for a reason are counted, by the reason.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import jax
from fuzz.check import Batch, wide_batch
from fuzz.shrink import as_python, failing, fails, shrunk
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.syntax import Syntax

LOOPS = 8  # of a batch
PLAINLY = 4  # batches of which one is held to the plain loop, too
FRESH = 40  # batches after which compiled programs are dropped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="how long (60)")
    parser.add_argument("--loops", type=int, help="how many, at most")
    parser.add_argument("--seed", type=int, default=10_000, help="first seed (10000)")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    console = Console()
    start, loops, failed = time.monotonic(), 0, 0
    left: Counter[str] = Counter()
    columns = [
        SpinnerColumn(),
        TextColumn("seed {task.fields[seed]}, {task.fields[loops]} loops"),
        BarColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console, refresh_per_second=1) as progress:
        task = progress.add_task(
            "fuzz", total=60 * options.minutes, seed=options.seed, loops=0, failed=0
        )
        for seed in count(options.seed):
            elapsed = time.monotonic() - start
            progress.update(
                task, completed=elapsed, seed=seed, loops=loops, failed=failed
            )
            enough = options.loops is not None and loops >= options.loops
            if enough or elapsed > 60 * options.minutes:
                break
            batch = wide_batch(seed, LOOPS)
            plainly = seed % PLAINLY == 0  # which takes as long as all the rest
            for bad in failing(batch, left, plainly):
                failed += 1
                show(bad, console)
            loops += LOOPS
            if (seed - options.seed) % FRESH == FRESH - 1:
                jax.clear_caches()
    console.print(
        f"{loops} loops on {jax.default_backend()} in {elapsed / 60:.1f} minutes from "
        f"seed {options.seed}: {failed} failed, {left.total()} left to XLA"
    )
    for reason, number in left.most_common():
        console.print(f"  {number:5} {reason}")
    return 1 if failed else 0


def show(batch: Batch, console: Console) -> None:
    """Print a failure as a program to run."""
    if len(batch.programs) > 1:
        console.print(f"[red]seed {batch.seed} fails, but none of its loops alone")
        return
    small = shrunk(batch)
    text = as_python(small, fails(small) or "")
    console.print(Syntax(text, "python", word_wrap=True, background_color="default"))


if __name__ == "__main__":
    sys.exit(main())
