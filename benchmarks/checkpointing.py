"""Memory and time of the gradient of a long loop, for each way to checkpoint it.

The loop has a carry of 4 KB and no xs. Each measurement is a process of its own: the
memory is what it holds more at its peak than before the call (the largest resident
set), and, next to it, what XLA says the program needs.

`python benchmarks/checkpointing.py` takes minutes. `--quick` takes one, all in this
process: what XLA says of the memory, and the processor's time for up to 10,000 steps.
Both save `build/checkpointing.png`; `--write` puts table and picture into the docs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import onescan

NUMBERS = 1024  # of the carry, 4 KB
LENGTHS = [1_000, 10_000, 100_000, 1_000_000]
#: a plain gradient of more steps than this does not fit into memory
PLAIN = 200_000
#: steps up to which the quick way runs a gradient
RUN_QUICKLY = 10_000
PLOT = Path("build/checkpointing.png")
DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "long-loops.md", DOCS / "images" / "checkpointing.png"


def drift(carry: Any, _: Any) -> tuple[Any, None]:
    return 0.999 * carry + 0.001 * jnp.sin(carry), None


def by_onescan(**options: Any) -> Callable[..., Any]:
    return lambda carry, steps: onescan.scan(drift, carry, None, steps, **options)[0]


def plain_jax(carry: Any, steps: int) -> Any:
    return jax.lax.scan(drift, carry, None, steps)[0]


def nested(carry: Any, steps: int) -> Any:
    """`jax.checkpoint` around an inner scan of as many steps as there are of them."""
    inner = int(steps**0.5)
    while steps % inner:
        inner -= 1
    segment = lambda carry, _: jax.lax.scan(drift, carry, None, inner)
    again = jax.checkpoint(segment, prevent_cse=False)
    return jax.lax.scan(again, carry, None, steps // inner)[0]


def by_equinox(carry: Any, steps: int) -> Any:
    import equinox.internal as eqxi

    return eqxi.scan(drift, carry, None, steps, kind="checkpointed")[0]


WAYS: dict[str, Callable[..., Any]] = {
    "jax.lax.scan": plain_jax,
    "onescan": by_onescan(),
    'checkpoint="sqrt"': by_onescan(checkpoint="sqrt"),
    'checkpoint="log"': by_onescan(checkpoint="log"),
    'checkpoint="50MB"': by_onescan(checkpoint="50MB"),
    "nested jax.checkpoint": nested,
    "equinox.internal.scan": by_equinox,
}


def measure(way: str, steps: int) -> dict[str, float]:
    """One measurement, in this process."""
    run = WAYS[way]
    gradient = jax.jit(jax.grad(lambda carry: run(carry, steps).sum()))
    carry, start = jnp.ones(NUMBERS), time.perf_counter()
    compiled = gradient.lower(carry).compile()
    compile_seconds = time.perf_counter() - start
    float(carry.sum())  # which compiles the sum that is timed with the gradient
    before = _peak()
    start = time.perf_counter()
    total = float(compiled(carry).sum())
    seconds = time.perf_counter() - start
    return {
        "compile": compile_seconds,
        "seconds": seconds,
        "resident": _peak() - before,
        "planned": compiled.memory_analysis().temp_size_in_bytes,
        "total": total,
    }


def measure_quickly(way: str, steps: int) -> dict[str, float]:
    """The memory that XLA plans and, of few steps, the processor's time."""
    run, carry = WAYS[way], jnp.ones(NUMBERS)
    gradient = jax.jit(jax.grad(lambda carry: run(carry, steps).sum()))
    compiled = gradient.lower(carry).compile()
    found = {"planned": compiled.memory_analysis().temp_size_in_bytes}
    if steps > RUN_QUICKLY:
        return found
    times = []
    for _ in range(3):
        start = time.process_time()
        found["total"] = float(compiled(carry).sum())
        times.append(time.process_time() - start)
    return found | {"seconds": min(times)}


def _peak() -> float:
    """The most bytes that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measured_apart(way: str, steps: int, seconds: float) -> dict[str, float] | None:
    """The same in a process of its own; None if it takes longer."""
    command = [sys.executable, __file__, "--one", way, str(steps)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=True
        )
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])


def show(results: dict[str, dict[int, dict[str, float]]]) -> None:
    table = Table("gradient by", "steps", "resident", "planned", "time", "a step")
    for way, by_length in results.items():
        for steps, found in by_length.items():
            table.add_row(
                way,
                f"{steps:,}",
                f"{found['resident'] / 1e6:.1f} MB" if "resident" in found else "",
                f"{found['planned'] / 1e6:.2f} MB",
                f"{found['seconds']:.3g} s" if "seconds" in found else "",
                step_time(found, steps),
            )
    Console().print(table)


def step_time(found: dict[str, float], steps: int) -> str:
    return f"{found['seconds'] / steps * 1e6:.1f} us" if "seconds" in found else ""


def markdown(results: dict[str, dict[int, dict[str, float]]]) -> str:
    """Memory and time of a step, for each way and length."""
    lengths = sorted({steps for found in results.values() for steps in found})
    rows = []
    for way, by_length in results.items():
        cells = [
            ", ".join(
                filter(
                    None,
                    [
                        f"{by_length[n]['planned'] / 1e6:,.2f} MB",
                        step_time(by_length[n], n),
                    ],
                )
            )
            if n in by_length
            else "-"
            for n in lengths
        ]
        rows.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(
        [
            f"| gradient by | {' | '.join(f'{n:,} steps' for n in lengths)} |",
            "|---" * (len(lengths) + 1) + "|",
            *rows,
        ]
    )


def write(text: str) -> None:
    """Replace the table of the page, which its comments mark."""
    page = PAGE.read_text()
    begin, end = "<!-- checkpointing -->\n", "<!-- end of checkpointing -->"
    head, rest = page.split(begin)
    PAGE.write_text(f"{head}{begin}\n{text}\n\n{end}{rest.split(end)[1]}")


def save_plot(results: dict[str, dict[int, dict[str, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 4.5), layout="constrained"
    )
    for number, (way, by_length) in enumerate(results.items()):
        steps = list(by_length)
        style = {"marker": "o", "color": f"C{number}", "label": way, "ms": 4}
        style["ls"] = "-" if "checkpoint=" in way or way == "onescan" else "--"
        planned = [max(found["planned"], 1) / 1e6 for found in by_length.values()]
        left.plot(steps, planned, **style)
        run = {n: f["seconds"] for n, f in by_length.items() if "seconds" in f}
        right.plot(list(run), [t / n * 1e6 for n, t in run.items()], **style)
    for axes, what in ((left, "memory of the gradient (MB)"), (right, "us per step")):
        axes.set(xscale="log", yscale="log", xlabel="steps", title=what)
        axes.grid(color="#e5e5e5")
    right.set_ylim(bottom=1)
    left.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="in one process")
    parser.add_argument("--write", action="store_true", help="into the docs")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "STEPS"))
    arguments = parser.parse_args()
    if arguments.one:
        way, steps = arguments.one
        print(json.dumps(measure(way, int(steps))))
        return
    results: dict[str, dict[int, dict[str, float]]] = {}
    totals: dict[int, float] = {}
    for way in WAYS:
        results[way] = {}
        for steps in LENGTHS:
            if way in ("jax.lax.scan", "onescan") and steps > PLAIN:
                continue
            if arguments.quick:
                found = measure_quickly(way, steps)
            else:
                found = measured_apart(way, steps, seconds=300)
            if found is None:
                print(f"{way}: {steps:,} steps take more than 300 s")
                break
            total = found.get("total", 0.0)
            wanted = totals.setdefault(steps, total)
            if abs(total - wanted) > 1e-3 * abs(wanted):
                raise SystemExit(f"{way}: the gradient of {steps:,} steps is wrong")
            results[way][steps] = found
    show(results)
    save_plot(results, PLOT)
    print(f"plot: {PLOT}")
    if arguments.write:
        write(markdown(results))
        save_plot(results, PICTURE)


if __name__ == "__main__":
    main()
