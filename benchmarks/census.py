"""A census of loops: which engine runs those of real programs, and why.

Each program is lowered with `install()` in force, which is all it takes to decide about
its loops; nothing is run.  The programs are those of `programs.py` and examples of the
libraries that are installed here (`programs/examples.py`).

A loop counts as one that a kernel should have if its body has no effects and does fewer
than a million operations a step.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from programs import PROGRAMS, Program, examples
from rich.console import Console
from rich.table import Table

import onescan
from onescan.passes.inline import inline
from onescan.plan.work import step_of
from onescan.reports import rows

EXAMPLES = """
examples:
  python benchmarks/census.py                        all programs, some minutes
  python benchmarks/census.py --only diffrax nuts    programs whose name contains this
  python benchmarks/census.py --write docs/census.md
  python benchmarks/census.py --suites diffrax.jsonl    and tests of libraries, which
                                                        census_plugin.py has noted
"""
#: operations of a step up to which a kernel should have a loop
SMALL = 1e6


@dataclass(frozen=True)
class Found:
    """One loop of one program."""

    program: str
    name: str
    length: int | str
    engine: str
    reason: str | None
    small: bool  # no effects, and few operations
    count: int
    source: str = ""

    @property
    def family(self) -> str:
        return self.program.split("/")[0]

    @property
    def predicted(self) -> bool:
        """Whether XLA has it because it is expected or measured to be faster."""
        return bool(self.reason) and "faster" in str(self.reason)


def loops_of(program: Program) -> list[Found]:
    """The loops of a program, each kind once, with how often it occurs."""
    onescan.clear_report()
    with jax.enable_x64(True) if program.x64 else nullcontext():
        fn, args = program.build()
        jax.jit(lambda *xs: fn(*xs)).lower(*args)
    return found_in_report(program.name)


def found_in_report(program: str) -> list[Found]:
    """The loops that were decided about since the report was cleared."""
    return [
        Found(
            program,
            row.name,
            row.length,
            row.engine,
            row.reason,
            _is_small(row),
            row.count,
            row.source,
        )
        for row in onescan.report().rows
    ]


def _is_small(row: rows.Row) -> bool:
    loop = rows.loop_of(row)
    if loop is None or loop.body.effects:
        return loop is None
    try:
        flat = inline(loop)
    except Exception:  # types of the user's making: only JAX knows what they mean
        return True
    return sum(work.operations for work in step_of(flat)) < SMALL


def noted(suites: Iterable[Path]) -> list[Found]:
    """What tests of libraries compiled: loops of one place and one kind once."""
    lines = (line for path in suites for line in path.read_text().splitlines())
    found = [Found(**json.loads(line)) for line in lines]
    kinds: dict[Any, Found] = {}
    for loop in found:
        reason = short(loop.reason or "")
        kinds.setdefault((loop.family, loop.source, loop.name, reason), loop)
    return list(kinds.values())


def short(reason: str) -> str:
    """A reason without places and numbers, so that alike ones are one."""
    reason = re.sub(r" at (\S+:\d+|an unknown line)", "", reason)
    reason = re.sub(r" \([^()]*\)", "", reason)
    return re.sub(r"\d[\d,.]*( \w?i?B| million)?", "…", reason)


def by_family(found: Iterable[Found]) -> list[list[str]]:
    groups: dict[str, list[Found]] = defaultdict(list)
    for loop in found:
        groups[loop.family].append(loop)
    table = []
    for family, loops in sorted(groups.items()):
        native = sum(loop.engine == "native" for loop in loops)
        kinds = Counter("while" if x.length == "while" else "scan" for x in loops)
        left = len(loops) - native
        numbers = (len(loops), kinds["scan"], kinds["while"], native, left)
        table.append([family, *map(str, numbers)])
    return table


def by_reason(found: Iterable[Found]) -> list[list[str]]:
    counts: Counter[str] = Counter()
    programs: dict[str, set[str]] = defaultdict(set)
    for loop in found:
        if loop.reason:
            reason = short(loop.reason)
            counts[reason] += 1
            programs[reason].add(loop.program)
    table = []
    for reason, count in counts.most_common():
        names = sorted(programs[reason])
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        table.append([str(count), reason, ", ".join(names[:2]) + more])
    return table


def summary(found: list[Found]) -> str:
    small = [loop for loop in found if loop.small]
    native = [loop for loop in small if loop.engine == "native"]
    better = [loop for loop in small if loop.predicted]
    share = (len(native) + len(better)) / max(len(small), 1)
    return (
        f"{len(found)} loops, {len(small)} of them without effects and with fewer than "
        f"a million operations a step: {len(native)} run natively, {len(better)} are "
        f"XLA's because it is faster, and {len(small) - len(native) - len(better)} are "
        f"left for other reasons ({share:.0%} as they should be)."
    )


HEADS = (
    ("programs", "loops", "scans", "whiles", "native", "XLA"),
    ("loops", "left to XLA because", "in"),
)


def page(found: list[Found], trouble: list[str]) -> str:
    """The census as a page of the docs."""
    parts = [
        "# A census of loops",
        f"Made by `python {' '.join(sys.argv)}` with JAX "
        f"{jax.__version__} on a {jax.devices()[0].platform.upper()}: the programs of "
        "`benchmarks/programs` and examples of libraries, lowered under `install()`, "
        "and tests of libraries, of which a loop counts once for each line that has "
        "one.",
        summary(found),
    ]
    for head, lines in zip(HEADS, (by_family(found), by_reason(found)), strict=True):
        rule = "|" + "---|" * len(head)
        text = ["| " + " | ".join(line) + " |" for line in (head, *lines)]
        parts.append("\n".join([text[0], rule, *text[1:]]))
    if trouble:
        parts.append("Not counted:\n\n" + "\n".join(f"- {t}" for t in trouble))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--write", type=Path, help="a page to write")
    parser.add_argument(
        "--suites", nargs="*", type=Path, default=[], help="noted loops"
    )
    parser.add_argument("--measure", action="store_true", help="time what is close")
    parser.add_argument("--minutes", type=float, default=60, help="stop after these")
    options = parser.parse_args()
    console, found, trouble = Console(), [], []
    end = time.monotonic() + 60 * options.minutes
    onescan.install()
    warnings.simplefilter("ignore")
    for program in [*PROGRAMS, *examples.PROGRAMS]:
        if options.only and not any(part in program.name for part in options.only):
            continue
        if program.missing or time.monotonic() > end:
            why = f"needs {' '.join(program.missing)}" if program.missing else "no time"
            trouble.append(f"{program.name}: {why}")
            continue
        try:
            with onescan.options(tune=options.measure):
                loops = loops_of(program)
        except Exception as error:  # one program less
            first = (str(error).splitlines() or [""])[0][:120]
            trouble.append(f"{program.name}: {type(error).__name__}: {first}")
            console.print(trouble[-1], markup=False)
            continue
        found += loops
        native = sum(loop.engine == "native" for loop in loops)
        console.print(f"{program.name}: {native} of {len(loops)} native", markup=False)
    found += noted(options.suites)
    for head, lines in zip(HEADS, (by_family(found), by_reason(found)), strict=True):
        table = Table(*head)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    console.print(summary(found))
    if options.write:
        options.write.write_text(page(found, trouble))


if __name__ == "__main__":
    main()
