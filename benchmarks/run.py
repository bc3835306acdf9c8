"""Run the benchmark: the same loops by stock JAX, onescan, C and Numba, or cuDNN.

Every case of the suite is compiled by each engine, the results are compared, and
the engines are timed in turns in this one process.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from importlib.util import find_spec
from os import cpu_count
from pathlib import Path
from typing import Any

import carries
import filters
import gpu_cases
import jax
import maps
import ode
import rl
import rnn
from case import Case
from measure import FAILED, ONESCAN, Plan, Result, measure
from plot import plot_title, save_plot
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.text import Text
from table import compare_table, geometric_mean, list_table, result_line, results_table

import onescan
from onescan.loop import LeaveToXla
from onescan.lowering import hook, pipeline
from onescan.targets.cpu.target import Cpu
from onescan.targets.nvidia.target import Nvidia

CASES: list[Case] = [
    case for family in (maps, ode, rl, filters, carries, rnn) for case in family.CASES
]
EXAMPLES = """
examples:
  python benchmarks/run.py                        everything, some minutes
  python benchmarks/run.py --only lorenz kalman   the families you work on
  python benchmarks/run.py --only 'gru/*/16x128'  a pattern
  python benchmarks/run.py --quick                rough numbers, stock's unroll 1 only
  python benchmarks/run.py --gpu                  the loops and sizes for a GPU
  python benchmarks/run.py --compare old.json     run, then before and after
  python benchmarks/run.py --passes off           kernels without the loop passes
  python benchmarks/run.py --compare old.json new.json
"""


def main() -> int:
    options = _parser().parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=190)
    cases = _selected(gpu_cases.CASES if options.gpu else CASES, options.only)
    if options.list:
        console.print(list_table(cases))
        return 0
    if options.compare and len(options.compare) == 2:
        before, after = map(_load, options.compare)
        console.print(compare_table(before, after))
        return 0
    if not cases:
        console.print("No case matches; --list shows them all.")
        return 2
    if options.gpu and not options.anyway and jax.default_backend() != "gpu":
        console.print(
            f"JAX finds no GPU here, only {jax.devices()}. Run this where JAX with "
            "CUDA is installed, or add --anyway for the same loops on this device."
        )
        return 2
    # Read before the run, which may write the same file.
    before = _load(options.compare[0]) if options.compare else None

    plan = Plan(engine=options.engine, gpu=options.gpu)
    if options.quick:
        # a GPU's calls are timed in a row, and a short row is mostly its last wait
        plan = replace(plan, unrolls=(), seconds=0.4 if plan.gpu else 0.1)
    jax.config.update("jax_enable_compilation_cache", False)
    _set_passes(options.passes)
    results = _run(cases, plan, options.out, console)
    if not results:
        return 130
    console.print(results_table(results, plan.gpu))
    _show(results, plan, options.out, console)
    if before is not None:
        console.print(compare_table(before, [r.to_dict() for r in results]))
    return _verdict(results, console)


def _set_passes(choice: str) -> None:
    """Take the loop passes or the kernels out of onescan, to see what each is worth."""
    if choice == "off":
        for target in (Cpu, Nvidia):
            target.passes = target.parallel_passes = ()
        hook.absorbed = lambda *_: None
    elif choice == "alone":

        def none(*_: Any) -> Any:
            raise LeaveToXla("the benchmark is of the passes alone")

        pipeline.planned = none


def _run(cases: list[Case], plan: Plan, out: Path, console: Console) -> list[Result]:
    """All results, or those there are when interrupted; saved one by one."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Elapsed(),
    )
    results: list[Result] = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(cases))
        try:
            for case in cases:

                def say(what: str) -> None:
                    progress.update(task, description=f"{case.name}: {what}")

                results.append(_measured(case, plan, say))
                _save(results, plan, out)
                progress.console.print(result_line(results[-1]))
                progress.advance(task)
        except KeyboardInterrupt:
            progress.console.print("Interrupted: what follows is what was measured.")
        finally:
            jax.clear_caches()
    return results


def _measured(case: Case, plan: Plan, say: Callable[[str], None]) -> Result:
    """The result of a case; one that cannot be run does not end the others."""
    try:
        return measure(case, plan, say)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        return Result(case, engine=FAILED, why=why[:500])


def _save(results: list[Result], plan: Plan, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    ratios = [ratio for r in results if (ratio := r.ratio(ONESCAN))]
    saved = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(),
        "plan": asdict(plan),
        "geometric_mean": geometric_mean(ratios),
        "cases": [result.to_dict() for result in results],
    }
    data = _file(out, plan, "json")
    data.write_text(json.dumps(saved, indent=1) + "\n")


def _file(out: Path, plan: Plan, kind: str) -> Path:
    return out / f"benchmarks{'-gpu' if plan.gpu else ''}.{kind}"


def _show(results: list[Result], plan: Plan, out: Path, console: Console) -> None:
    """Say where the numbers are, and draw them."""
    console.print(f"numbers: {_file(out, plan, 'json')}")
    if find_spec("matplotlib"):
        picture = _file(out, plan, "png")
        machine = "{processor}, {cores} cores, JAX {jax}".format(**_machine())
        if plan.gpu:
            machine = "{chip}, JAX {jax}".format(**_machine())
        save_plot(results, picture, plot_title(results, machine))
        console.print(f"plot: {picture}")


def _verdict(results: list[Result], console: Console) -> int:
    """1 when onescan failed or a result is not stock's, after saying which."""
    faults = [
        f"{result.case.name}: {name} differs from stock by {difference:.1e}"
        for result in results
        for name, difference in result.wrong.items()
    ] + [
        f"{result.case.name}: onescan failed: {result.why}"
        for result in results
        if result.engine == FAILED
    ]
    for fault in faults:
        console.print(Text(fault, "red"))
    return 1 if faults else 0


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": cpu_count(),
        "device": str(jax.devices()[0]),
        "chip": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "onescan": onescan.__version__,
    }


def _processor() -> str:
    """The name of the processor; Linux keeps it in a file."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or platform.machine()


def _selected(cases: list[Case], patterns: list[str] | None) -> list[Case]:
    """The cases whose name contains, or as a pattern matches, one of these."""
    if not patterns:
        return cases
    return [
        c for c in cases if any(p in c.name or fnmatch(c.name, p) for p in patterns)
    ]


def _load(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["cases"]


def _earlier_run(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{path} is not a file")
    return path


class _OneOrTwo(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, *_: Any) -> None:
        if len(values) > 2:
            parser.error(
                "--compare takes OLD.json, and NEW.json to compare without running"
            )
        setattr(namespace, self.dest, values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", metavar="PATTERN", help="cases whose name contains this")
    add("--list", action="store_true", help="show the cases and stop")
    add("--quick", action="store_true", help="rough numbers, in a fraction of the time")
    add("--gpu", action="store_true", help="the loops and sizes for a GPU, and cuDNN")
    add("--anyway", action="store_true", help="--gpu also where there is none")
    add(
        "--engine",
        choices=("auto", "native"),
        default="auto",
        help="native: a loop that onescan leaves to XLA is not timed (default: auto)",
    )
    add(
        "--passes",
        choices=("on", "off", "alone"),
        default="on",
        help="off: nothing leaves the loops; alone: XLA runs what the passes leave",
    )
    add("--out", type=Path, default=Path("out"), help="where to write (default: out)")
    add(
        "--compare",
        nargs="+",
        type=_earlier_run,
        action=_OneOrTwo,
        metavar="JSON",
        help="an earlier run, to show beside this one; or two, without running",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
