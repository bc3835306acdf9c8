"""`python -m onescan --compare script.py`: the user's own program under both engines.

Each run of the program is a process of its own, because that is what a user has: its
imports, its compiling, its caches, nothing warm from the other engine.  The engines
take turns (ABBA), so that a machine that slows down slows both; the medians count.
Only the first run's output is shown.

What a loop takes by itself is measured in one more process, with made-up numbers: both
engines in turns on each loop that the program has lowered.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onescan.reports.table import short
from onescan.tune.speed import Speed

ENGINES = ("xla", "auto")
ROUNDS = 3  # runs of each engine
COMPILING = (  # JAX's own events; those of tracing are counted twice in nested calls
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


def compare(program: Sequence[str], rounds: int = ROUNDS) -> int:
    """Run a program in turns, print what both take; the exit code of a failing run."""
    runs: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
    turns = [ENGINES if i % 2 == 0 else ENGINES[::-1] for i in range(rounds)]
    for number, engine in enumerate(engine for turn in turns for engine in turn):
        code, found = _run_once(program, engine, shown=number == 0)
        if code != 0:
            who = "stock JAX" if engine == "xla" else "onescan"
            text = f"onescan --compare: the program ended with {code} under {who}."
            print(text, file=sys.stderr)
            return code
        runs[engine].append(found)
    console = Console(stderr=True)
    console.print(_table_of_times(runs))
    _, found = _run_once(program, "auto", shown=False, loops=True)
    if found["loops"]:
        console.print(_table_of_loops(found["loops"]))
    return 0


def _run_once(
    program: Sequence[str], engine: str, *, shown: bool, loops: bool = False
) -> tuple[int, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "times.json")
        command = [sys.executable, "-m", "onescan", "--engine", engine]
        command += ["--times", str(out), *(["--loops"] if loops else []), *program]
        stream = None if shown else subprocess.DEVNULL
        code = subprocess.run(command, stdout=stream, stderr=stream).returncode
        return code, json.loads(out.read_text()) if out.exists() else {}


class Watch:
    """The times of the program in this process, written down at its end."""

    def __init__(self, out: Path, *, loops: bool) -> None:
        import jax.monitoring

        self.out, self.loops, self.compiling = out, loops, 0.0
        jax.monitoring.register_event_duration_secs_listener(self._hear)
        self.start = time.perf_counter()

    def _hear(self, event: str, duration_secs: float, **_: Any) -> None:
        if event in COMPILING:
            self.compiling += duration_secs

    def write(self) -> None:
        total = time.perf_counter() - self.start
        loops = times_of_loops() if self.loops else []
        found = {"total": total, "compiling": self.compiling, "loops": loops}
        self.out.write_text(json.dumps(found))


def times_of_loops() -> list[dict[str, Any]]:
    """What each loop of the report takes on both engines, with made-up numbers."""
    from onescan.command.alone import speed_of
    from onescan.reports.rows import loop_of, report
    from onescan.reports.table import listed

    found = []
    for row in listed(report().rows):
        loop = loop_of(row)
        speed = loop and speed_of(loop)
        if speed:
            where = f"{row.name}  {short(row.source)}"
            times = {"native": speed.native, "xla": speed.xla}
            found.append({"loop": where, "engine": row.engine, **times})
    return found


def _table_of_times(runs: dict[str, list[dict[str, Any]]]) -> Table:
    table = Table(title="the program, from its first line to its end")
    for title in ("", "stock JAX", "onescan", "faster"):
        table.add_column(title, justify="right" if title else "left")
    parts = {
        "total": lambda run: run["total"],
        "lowering and compiling": lambda run: run["compiling"],
        "the rest": lambda run: run["total"] - run["compiling"],
    }
    for name, part in parts.items():
        stock, ours = (median(map(part, runs[engine])) for engine in ENGINES)
        ratio = _ratio(stock / ours if ours > 0 else None)
        table.add_row(name, f"{stock:.2f} s", f"{ours:.2f} s", ratio)
    table.caption = f"medians of {len(runs['xla'])} runs each, in turns"
    return table


def _table_of_loops(loops: list[dict[str, Any]]) -> Table:
    table = Table(title="its loops by themselves, with made-up numbers")
    table.add_column("loop", overflow="fold")
    for title in ("engine", "a step takes", "faster"):
        table.add_column(title, justify="right")
    for loop in loops:
        speed = Speed(loop["native"], loop["xla"], measured=True)
        table.add_row(loop["loop"], loop["engine"], str(speed), _ratio(speed.ratio))
    return table


def _ratio(ratio: float | None) -> Text:
    if ratio is None:
        return Text("-")
    color = "red" if ratio < 0.95 else "green" if ratio > 1.05 else "default"
    return Text(f"{ratio:.2f}x", color)
