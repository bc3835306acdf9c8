"""The progress bar of a training run: steps, rate, time left, and the last metrics."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SMOOTHING = 0.7  # weight of what the rate was before


class Bar:
    """A bar on standard error; silent where that is not a terminal or a notebook."""

    def __init__(
        self,
        wanted: bool | str,
        total: int | None,
        done: int = 0,
        console: Console | None = None,
    ) -> None:
        console = console or Console(stderr=True)
        seen = bool(wanted) and (console.is_terminal or console.is_jupyter)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("left "),
            TextColumn("{task.fields[metrics]}"),
            console=console,
            disable=not seen,
        )
        description = wanted if isinstance(wanted, str) else "training"
        self._task = self._progress.add_task(
            description, total=total, completed=done, rate="compiling", metrics=""
        )
        self._rate: float | None = None
        self._then = time.perf_counter()

    def __enter__(self) -> Bar:
        self._progress.start()
        self._then = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def advance(self, steps: int, metrics: dict[str, float]) -> None:
        """Some steps are done; these are the metrics of the last."""
        now = time.perf_counter()
        rate = steps / max(now - self._then, 1e-9)
        self._then = now
        if self._rate is not None:
            rate = SMOOTHING * self._rate + (1 - SMOOTHING) * rate
        self._rate = rate
        shown = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        self._progress.update(
            self._task, advance=steps, rate=rate_text(rate), metrics=shown
        )

    def say(self, text: str) -> None:
        """A line above the bar, also where there is no bar."""
        self._progress.console.print(text, highlight=False)


def rate_text(rate: float) -> str:
    """Steps per second in a few characters.

    >>> rate_text(12345.6), rate_text(3.21)
    ('12.3k steps/s', '3.2 steps/s')
    """
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if rate >= unit:
            return f"{rate / unit:.1f}{name} steps/s"
    return f"{rate:.1f} steps/s"
