"""Run one loop under stock JAX and under onescan: times, agreement, engine, reason.

Both run in the same process, in many short turns, so that whatever else the machine
does meets both alike; a time is the median over the turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import jax
import numpy as np

import onescan
from onescan.demo.loops import Case
from onescan.reports.rows import Report
from onescan.switches import Engine

LONG_ENOUGH = 0.005  # seconds of calls behind one timing, so that the clock is exact
TOLERANCE = 1000  # rounding errors of the largest value by which results may differ


@dataclass(frozen=True)
class Result:
    """What the demo found out about one loop."""

    title: str
    steps: int
    stock: float  # seconds of one run
    ours: float
    engine: str
    why: str
    difference: float  # worst element, in rounding errors of its array's largest

    @property
    def ratio(self) -> float:
        return self.stock / self.ours

    @property
    def agrees(self) -> bool:
        return self.difference <= TOLERANCE


def measure(case: Case, steps: int, turns: int, tick: Callable[[], None]) -> Result:
    """Measure one loop; `tick` is called `turns + 1` times, as the work goes on."""
    args = jax.device_put(case.make(steps))
    stock = jax.jit(partial(case.run, jax.lax.scan))
    ours = jax.jit(partial(case.run, onescan.scan))

    onescan.clear_report()
    with onescan.engine("xla"):
        expected = stock(*args)
        once = _seconds(stock, args, 1)
    with onescan.engine("auto"):
        found = ours(*args)
    engine, why = what_became(onescan.report())
    tick()

    calls = max(1, round(LONG_ENOUGH / once))
    stock_times: list[float] = []
    our_times: list[float] = []
    turn: list[tuple[Engine, Any, list[float]]]
    turn = [("xla", stock, stock_times), ("auto", ours, our_times)]
    for _ in range(turns):
        for engine_name, f, times in turn:
            with onescan.engine(engine_name):
                times.append(_seconds(f, args, calls))
        turn.reverse()  # neither is always the one that comes second
        tick()
    return Result(
        title=case.title,
        steps=steps,
        stock=median(stock_times),
        ours=median(our_times),
        engine=engine,
        why=why,
        difference=difference(expected, found),
    )


def _seconds(f: Callable[..., Any], args: tuple[Any, ...], calls: int) -> float:
    """The time of one call, from several in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(f(*args))
    return (time.perf_counter() - start) / calls


def difference(expected: Any, found: Any) -> float:
    """The worst difference of two results, in rounding errors of the largest value."""

    def worst(a: Any, b: Any) -> float:
        a, b = np.asarray(a), np.asarray(b)
        if np.array_equal(a, b):
            return 0.0
        kind = np.finfo(a.dtype)
        rounding = max(kind.eps * np.abs(a).max(), kind.tiny)
        return float(np.abs(a - b).max() / rounding)

    worsts = jax.tree.leaves(jax.tree.map(worst, expected, found))
    return float(np.max(worsts))  # not a number stays one, and does not agree


def what_became(report: Report) -> tuple[str, str]:
    """The engine of a program's loops, and why, from the rows they left."""
    rows = report.rows
    native = [row for row in rows if row.engine == "native"]
    if native and len(native) < len(rows):
        engine = f"native {len(native)}/{len(rows)}"
    else:
        engine = "native" if native else "XLA"
    kernels = "one kernel" if len(native) == 1 else f"{len(native)} kernels"
    passes = dict.fromkeys(name for row in rows for name in row.passes)
    reasons = dict.fromkeys(row.reason for row in rows if row.reason)
    why = "; ".join(([kernels] if native else []) + list(reasons))
    return engine, why + (f" ({', '.join(passes)})" if passes else "")
