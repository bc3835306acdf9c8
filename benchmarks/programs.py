"""Whole programs under stock JAX and under onescan, in turns in one process.

Each is compiled as its user would compile it, by both engines; the results are
compared, and then they are timed in turns.  On a GPU stock JAX also runs with its
loops in command buffers, and its better time counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from math import exp, log
from pathlib import Path
from typing import Any

import jax
from differences import difference, plain
from first_loop import warm_up
from programs import PROGRAMS, Program
from rich.console import Console
from rich.table import Table
from rich.text import Text
from timing import in_turns

import onescan

STOCK, GRAPHS, ONESCAN = "stock", "stock, command buffers", "onescan"
#: what XLA puts into command buffers by itself, and its loops
BUFFERS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,WHILE"
SLOWER = 0.95  # below this a program counts as slower
LONG = 3.0  # seconds of a call that is not repeated
TF32 = 5e-2  # what the default precision of products on a GPU may do to a result
EXAMPLES = """
examples:
  python benchmarks/programs.py                   all programs, some minutes
  python benchmarks/programs.py --only ppo hmm    programs whose name contains this
  python benchmarks/programs.py --quick           rough numbers
  python benchmarks/programs.py --busy 4          while others keep the machine busy
  python benchmarks/programs.py --gpu --quick --minutes 9 --json gpu.json
"""


@dataclass
class Result:
    name: str
    seconds: dict[str, float] = field(default_factory=dict)  # of a call, median
    compile: dict[str, float] = field(default_factory=dict)  # traced to executable
    difference: float | None = None
    wrong: bool = False
    native: int = 0  # loops
    left: dict[str, str] = field(default_factory=dict)  # loop: why XLA has it
    trouble: str = ""

    @property
    def stock(self) -> float:
        return min(s for name, s in self.seconds.items() if name != ONESCAN)

    @property
    def ratio(self) -> float | None:
        done = {STOCK, ONESCAN} <= set(self.seconds)
        return self.stock / self.seconds[ONESCAN] if done else None

    @property
    def compile_ratio(self) -> float | None:
        done = {STOCK, ONESCAN} <= set(self.compile)
        return self.compile[ONESCAN] / self.compile[STOCK] if done else None

    def to_dict(self) -> dict[str, Any]:
        ratios = {"ratio": self.ratio, "compile_ratio": self.compile_ratio}
        return asdict(self) | ratios


def main() -> int:
    options = _parser().parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=110)
    chosen = [p for p in PROGRAMS if _is_chosen(p, options.only)]
    if options.list:
        for program in chosen:
            note = f"  (needs {', '.join(program.missing)})" if program.missing else ""
            console.print(Text(program.name + note))
        return 0
    if not chosen:
        console.print("No program matches; --list shows them all.")
        return 2
    if options.gpu and jax.default_backend() != "gpu":
        console.print(f"JAX finds no GPU here, only {jax.devices()}.")
        return 2
    jax.config.update("jax_enable_compilation_cache", False)
    onescan.install()
    warm_up()
    results = []
    end = time.monotonic() + 60 * options.minutes
    for program in chosen:
        if time.monotonic() > end:
            console.print(f"Out of time before {program.name}.")
            break
        if program.missing:
            console.print(f"{program.name}: skipped, needs {' '.join(program.missing)}")
            continue
        with busy(options.busy):
            results.append(measured(program, options.gpu, options.quick))
        console.print(_line(results[-1]))
        _save(results, options.json)
        jax.clear_caches()
    console.print(_table(results))
    return _verdict(results, console)


@contextmanager
def busy(each: int) -> Iterator[None]:
    """A machine that so many other processes keep busy on each of its cores."""
    loop = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(loop) for _ in range(each * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measured(program: Program, gpu: bool, quick: bool) -> Result:
    """All about one program; one that fails does not end the others."""
    result = Result(program.name)
    try:
        with jax.enable_x64(True) if program.x64 else nullcontext():
            _measure(program, result, gpu, quick)
    except Exception as error:
        result.trouble = f"{type(error).__name__}: {error}"[:300]
    return result


def _measure(program: Program, result: Result, gpu: bool, quick: bool) -> None:
    fn, args = program.build()
    for engine in ("xla", "auto"):  # fills the caches of jax.numpy and of libraries
        with onescan.engine(engine):
            jax.jit(lambda *args: fn(*args)).trace(*args)
    runs = {STOCK: _compiled(result, STOCK, fn, args, onescan.engine("xla"))}
    if gpu:
        runs[GRAPHS] = _compiled(
            result,
            GRAPHS,
            fn,
            args,
            onescan.engine("xla"),
            {"xla_gpu_enable_command_buffer": BUFFERS},
        )
    onescan.clear_report()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onescan.EngineWarning)  # the table has it
        runs[ONESCAN] = _compiled(result, ONESCAN, fn, args, onescan.engine("auto"))
    _tell_loops(result)
    _check(program, result, runs, gpu, quick)
    result.seconds = _times(runs, 0.1 if quick else 0.5)


def _compiled(
    result: Result,
    name: str,
    fn: Any,
    args: Any,
    engine: AbstractContextManager[Any],
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """A call that is done when it returns."""
    start = time.perf_counter()
    with engine:
        lowered = jax.jit(lambda *args: fn(*args)).lower(*args)
        compiled = lowered.compile(compiler_options)
    result.compile[name] = time.perf_counter() - start
    return lambda: jax.block_until_ready(compiled(*args))


def _tell_loops(result: Result) -> None:
    for row in onescan.report().rows:
        if row.engine == "native":
            result.native += 1
        else:
            where = Path(row.source).name
            result.left[f"{row.name} ({where})"] = row.reason or ""


def _check(
    program: Program, result: Result, runs: dict[str, Any], gpu: bool, quick: bool
) -> None:
    """Compare both engines; on a GPU with products that are exact, if there is time."""
    tolerance = program.tolerance
    expected, found = runs[STOCK], runs[ONESCAN]
    if gpu and quick:
        tolerance = max(tolerance, TF32)
    elif gpu:
        exact = Result(program.name)
        fn, args = program.build()
        with jax.default_matmul_precision("highest"):
            expected = _compiled(exact, STOCK, fn, args, onescan.engine("xla"))
            found = _compiled(exact, ONESCAN, fn, args, onescan.engine("auto"))
    pair = [jax.device_get(plain(program.checked(run()))) for run in (found, expected)]
    result.difference = difference(*pair, program.agree)
    result.wrong = not result.difference <= tolerance


def _times(runs: dict[str, Any], seconds: float) -> dict[str, float]:
    """Seconds of each; a call that takes long is timed once."""
    once = {name: _once(run) for name, run in runs.items()}
    if max(once.values()) > LONG:
        return once
    return {name: timing.seconds for name, timing in in_turns(runs, seconds).items()}


def _once(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _is_chosen(program: Program, patterns: list[str] | None) -> bool:
    name = program.name
    return not patterns or any(p in name or fnmatch(name, p) for p in patterns)


def _save(results: list[Result], out: Path | None) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        saved = {
            "device": jax.devices()[0].device_kind,
            "jax": jax.__version__,
            "programs": [result.to_dict() for result in results],
        }
        out.write_text(json.dumps(saved, indent=1) + "\n")


def _line(result: Result) -> Text:
    if result.trouble:
        return Text(f"{result.name}: failed: {result.trouble}", "red")
    return Text.assemble(f"{result.name}: ", _times_x(result.ratio))


def _table(results: list[Result]) -> Table:
    table = Table(title="programs: stock JAX and onescan")
    for title in ("program", "stock", "onescan", "faster", "compile", "", "loops"):
        table.add_column(title, justify="left" if title == "program" else "right")
    table.add_column("differs by", justify="right")
    for r in sorted(results, key=lambda r: r.ratio or 0):
        if r.trouble:
            table.add_row(r.name, Text("failed", "red"))
            continue
        difference = f"{r.difference:.0e}" if r.difference else "0"
        best = "*" if r.stock < r.seconds[STOCK] else ""
        table.add_row(
            r.name,
            _time(r.stock) + best,
            _time(r.seconds[ONESCAN]),
            _times_x(r.ratio),
            f"{r.compile[STOCK]:.2f} s",
            Text(f"{r.compile_ratio:.2f}x", "red" if r.compile_ratio > 1.3 else ""),
            f"{r.native} of {r.native + len(r.left)}",
            Text(difference, "bold red" if r.wrong else ""),
        )
    table.caption = "loops: native of all; compile: stock, and onescan's as a multiple"
    if any(len(r.seconds) > 2 for r in results):
        table.caption += "; *: with command buffers"
    return table


def _verdict(results: list[Result], console: Console) -> int:
    ratios = [r.ratio for r in results if r.ratio]
    if ratios:
        mean = exp(sum(map(log, ratios)) / len(ratios))
        slower = [r for r in results if r.ratio and r.ratio < SLOWER]
        late = [r for r in results if r.compile_ratio and r.compile_ratio > 1.3]
        console.print(
            f"{len(ratios)} programs, geometric mean {mean:.2f}x; {len(slower)} below "
            f"{SLOWER}x; {len(late)} compile for more than 1.3x"
        )
        for r in slower:
            for loop, why in r.left.items():
                console.print(Text(f"{r.name}: {loop} left to XLA: {why}"))
    for r in results:
        if r.wrong:
            console.print(Text(f"{r.name} differs by {r.difference:.1e}", "red"))
    return 1 if any(r.wrong or r.trouble for r in results) else 0


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:#.3g} {unit}".replace(". ", " ")
    return f"{seconds * 1e6:#.3g} us".replace(". ", " ")


def _times_x(ratio: float | None) -> Text:
    if ratio is None:
        return Text("-")
    color = "red" if ratio < SLOWER else "green" if ratio > 1 / SLOWER else "default"
    return Text(f"{ratio:.2f}x", color)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", metavar="NAME", help="programs whose name contains this")
    add("--list", action="store_true", help="show the programs and stop")
    add("--quick", action="store_true", help="rough numbers, in a fraction of the time")
    add("--gpu", action="store_true", help="on a GPU, stock also with command buffers")
    add("--busy", type=int, default=0, metavar="N", help="N busy processes for a core")
    add("--minutes", type=float, default=1e6, help="begin no program after this")
    add("--json", type=Path, metavar="FILE", help="write the numbers there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
