"""Times of several ways to do the same thing, taken in turns.

Every round runs each way once, for about the same time, so that a machine that
slows down or is shared slows them all alike; medians over the rounds leave out
what remains.  Where the rounds still disagree, more are taken.

A call either waits for its result, or is only started (on a GPU); then the calls of
a round follow each other as a program's do, and only the last one is waited for.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import quantiles

ROUNDS = 20
FEWEST_ROUNDS = 5
SLOW, SLOW_ROUNDS = 1.0, 3  # a call of more seconds than this has fewer rounds
NOISY = 0.15  # the middle half of the rounds spreads over this much of the median
EXTRA_TURNS = 2

Run = Callable[[], object]
Wait = Callable[[object], object]  # for what a run has started


@dataclass(frozen=True)
class Timing:
    seconds: float  # of one call, the median over the rounds
    spread: float  # between the quartiles, as a share of the median
    fastest: float  # the best round: what is left of a time on a busy machine
    rounds: int

    @property
    def noisy(self) -> bool:
        return self.spread > NOISY


def in_turns(
    runs: dict[str, Run], seconds: float, wait: Wait = lambda _: None
) -> dict[str, Timing]:
    """The time of each run, measured for about `seconds` each."""
    each = seconds / ROUNDS
    calls = {name: _calls_in(run, each, wait) for name, run in runs.items()}
    slowest = max(_batch(run, n := calls[k], wait) * n for k, run in runs.items())
    fewest = SLOW_ROUNDS if slowest > SLOW else FEWEST_ROUNDS
    rounds = round(min(ROUNDS, max(fewest, seconds / slowest)))
    samples: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    gc.disable()
    try:
        for _ in range(1 if slowest > SLOW else 1 + EXTRA_TURNS):
            for _ in range(rounds):
                for name, run in runs.items():
                    samples[name].append(_batch(run, calls[name], wait))
            timings = {name: _timing(taken) for name, taken in samples.items()}
            if not any(timing.noisy for timing in timings.values()):
                break
    finally:
        gc.enable()
    return timings


def _calls_in(run: Run, seconds: float, wait: Wait) -> int:
    """How many calls fill that time; doubles as the warm-up."""
    wait(run())
    calls = 1
    while (taken := _batch(run, calls, wait) * calls) < seconds / 2:
        calls = max(2 * calls, round(calls * 0.75 * seconds / max(taken, 1e-9)))
    return calls


def _batch(run: Run, calls: int, wait: Wait) -> float:
    """Seconds of one call, over that many."""
    start = time.perf_counter()
    for _ in range(calls - 1):
        run()
    wait(run())
    return (time.perf_counter() - start) / calls


def _timing(samples: list[float]) -> Timing:
    low, middle, high = quantiles(samples, n=4)
    return Timing(middle, (high - low) / middle, min(samples), len(samples))
