"""Progress bars: what the calls from inside a compiled loop do on the host.

A run of a loop opens a bar, is told how far it is, and closes it.  Calls of a run that
is not open (a gradient runs its steps again, when the bar has long been full) are
passed over.  Where a run ended without a word, because the program failed elsewhere,
its bar is closed when the same loop starts again, or when the process ends.
"""

from __future__ import annotations

import atexit
import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from onescan.long.ctrl_c import ctrl_c
from onescan.long.show import bar_for

#: seconds between two calls of a loop, and between two drawings of a bar
CALL, REFRESH = 0.05, 0.25
#: a number of steps that no loop reaches
LAST = 2**31 - 1


class Bar(Protocol):
    """What shows one run."""

    def update(self, count: int, metrics: dict[str, float]) -> None: ...

    def close(self) -> None: ...


@dataclass(eq=False)
class Loop:
    """A loop in a program, of which there may be many runs."""

    name: str
    total: int
    given: Any  # True, a description, a bar, or what makes one


@dataclass
class Run:
    """One run of a loop."""

    loop: Loop
    bar: Bar
    signals: int
    drawn: float = 0.0
    began: float = field(default_factory=time.monotonic)
    count: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


_runs: dict[int, Run] = {}
_numbers = itertools.count(1)
_lock = threading.RLock()


def start(loop: Loop) -> int:
    """Open the bar of a new run; the number of the run."""
    ctrl_c().listen()
    with _lock:
        for number in [n for n, run in _runs.items() if run.loop is loop]:
            _close(number)
        number = next(_numbers)
        bar = bar_for(loop.given, loop.name, loop.total, nested=bool(_runs))
        _runs[number] = Run(loop, bar, ctrl_c().count())
        ctrl_c().hold()
        return number


def tick(number: int, count: int, metrics: dict[str, float]) -> int:
    """Show how far a run is, or stop it if the user wants that; when to call again."""
    with _lock:
        run = _runs.get(number)
        if run is None:
            return LAST
        if ctrl_c().count() != run.signals:
            close_all()
            ctrl_c().interrupt()
            raise KeyboardInterrupt
        ctrl_c().hold()
        run.count, run.metrics = max(run.count, count), metrics
        now = time.monotonic()
        if now - run.drawn >= REFRESH:
            run.drawn = now
            run.bar.update(run.count, metrics)
        rate = count / (now - run.began + 1e-6)
        return min(LAST, count + max(1, int(rate * CALL)))


def end(number: int, count: int) -> None:
    """Close the bar of a run."""
    with _lock:
        if number in _runs:
            run = _runs[number]
            run.count = max(run.count, count)
            _close(number)


def close_all() -> None:
    """Close every bar as it is, after an exception or at the end of the process."""
    with _lock:
        for number in list(_runs):
            _close(number)


def _close(number: int) -> None:
    run = _runs.pop(number)
    if not _runs:
        ctrl_c().hold(0)
    run.bar.update(run.count, run.metrics)
    run.bar.close()


atexit.register(close_all)
