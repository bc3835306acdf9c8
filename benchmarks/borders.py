"""Are kernels ever slower in loops whose predictions are trusted?

``python benchmarks/borders.py 5000 200``: of so many random loops, those that run long
enough are tried whatever is predicted, and counted by the border that
`onescan/targets/cpu/borders.py` gives them.  What is trusted there should be slower in
none, on a machine that is quiet: where others work, a trial may say so of a kernel that
is faster.  It takes about a second for each.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections import defaultdict
from dataclasses import replace
from typing import Any

import jax
from random_program import random_loop
from rich.console import Console
from rich.progress import track
from rich.table import Table

import onescan
from onescan.targets.cpu import borders, target

NAMES = {
    "KNOWN": "trusted",
    "OTHERS": "others",
    "WALKS": "wide values",
    "FROM_MEMORY": "from memory",
}
#: a kernel may be so much slower by noise
CLOSE = 0.97


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, help="how many")
    options = parser.parse_args()
    found, now = defaultdict(list), [0]
    _try_all(found, now)
    with tempfile.TemporaryDirectory() as folder:  # nothing is known of any loop
        os.environ["XDG_CACHE_HOME"] = folder
        for seed in track(range(options.first, options.first + options.count)):
            now[0] = seed
            _compile(seed)
    Console().print(table(found))


def _try_all(found: dict[str, list[Any]], now: list[int]) -> None:
    """Have every loop tried, and note its border and what was measured."""
    kinds = {id(getattr(borders, name)): told for name, told in NAMES.items()}
    given: dict[int, str] = {}
    border, tried = borders.border, target.Cpu.tried

    def always(plan: Any, profile: Any, size: int) -> Any:
        was = border(plan, profile, size)
        given[id(plan.loop)] = kinds.get(id(was), "large")
        return replace(was, sure=float("inf"), hopeless=0.0)

    def noted(self: Any, plan: Any, kernel: Any, expected: Any, placed: Any) -> Any:
        speed = tried(self, plan, kernel, expected, placed)
        found[given[id(plan.loop)]].append((now[0], expected.ratio, speed.ratio))
        return speed

    target.border, target.Cpu.tried = always, noted


def _compile(seed: int) -> None:
    loop = random_loop(seed)
    with warnings.catch_warnings(), onescan.engine("auto"):
        warnings.simplefilter("ignore")
        jax.jit(lambda *args: loop.fn(*args)).lower(*loop.args)
    jax.clear_caches()


def table(found: dict[str, list[tuple[int, float, float]]]) -> Table:
    shown = Table("border", "tried", "slower", "least", "seeds, and predicted")
    for name in (*NAMES.values(), "large"):
        ratios = [measured for _, _, measured in found[name]]
        if not ratios:
            continue
        slower = [(seed, p) for seed, p, measured in found[name] if measured < CLOSE]
        told = ", ".join(f"{seed} ({p:.1f}x)" for seed, p in slower) or "-"
        shown.add_row(
            name, str(len(ratios)), str(len(slower)), f"{min(ratios):.2f}x", told
        )
    shown.caption = "seeds: of those that were slower"
    return shown


if __name__ == "__main__":
    onescan.install()
    main()
