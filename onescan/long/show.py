"""How a bar looks: in a terminal, in a notebook, and as a bar of the user's own."""

from __future__ import annotations

import html
import importlib
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

#: columns of a bar, which leave room for what stands beside it
WIDTH = 20


def bar_for(given: Any, name: str, total: int, nested: bool) -> Any:
    """The bar that `progress=` asks for."""
    if given is not True and not isinstance(given, str):
        return GivenBar(given, total)
    description = name if given is True else given
    if in_notebook():
        return NotebookBar(description, total)
    return TerminalBar(description, total, nested)


def in_notebook() -> bool:
    """Whether output goes to a notebook's page."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def facts(count: int, total: int, seconds: float, metrics: dict[str, float]) -> str:
    """``1.2M/5M · 2.1M steps/s · 2 s left · loss 0.31``"""
    rate = count / seconds if seconds > 0 else 0.0
    left = f"{duration((total - count) / rate)} left" if rate else "starting"
    if count >= total:
        left = f"in {duration(seconds)}"
    shown = [f"{short(count)}/{short(total)}", f"{short(rate)} steps/s", left]
    shown += [f"{key} {value:.4g}" for key, value in metrics.items()]
    return " · ".join(shown)


def short(number: float) -> str:
    """A number in few digits: "2.13M", "8,192"."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def duration(seconds: float) -> str:
    """A time for people: "0.4 s", "12 s", "3:05 min", "2:10 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02} min"
    return f"{minutes // 60}:{minutes % 60:02} h"


class Facts(ProgressColumn):
    """The text beside a bar."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["facts"], no_wrap=True)


class TerminalBar:
    """A line of a terminal; loops inside loops share one display."""

    display: Progress | None = None
    open: int = 0

    def __init__(self, description: str, total: int, nested: bool) -> None:
        cls = type(self)
        if cls.display is None:
            columns = TextColumn("{task.description}"), BarColumn(WIDTH), Facts()
            console = Console(stderr=True)
            cls.display = Progress(*columns, console=console, auto_refresh=False)
            cls.display.start()
        cls.open += 1
        self.total, self.nested, self.began = total, nested, time.monotonic()
        self.task = cls.display.add_task(description, total=total, facts="")

    def update(self, count: int, metrics: dict[str, float]) -> None:
        assert self.display is not None
        seconds = time.monotonic() - self.began
        text = facts(count, self.total, seconds, metrics)
        self.display.update(self.task, completed=count, facts=text)
        self.display.refresh()

    def close(self) -> None:
        cls = type(self)
        assert cls.display is not None
        if self.nested:  # of which there may be very many
            cls.display.remove_task(self.task)
        cls.open -= 1
        if cls.open == 0:
            cls.display.stop()
            cls.display = None


class NotebookBar:
    """A line of a notebook's page, which is drawn anew in its place."""

    def __init__(self, description: str, total: int) -> None:
        self.description, self.total = description, total
        self.began, self.place = time.monotonic(), None

    def update(self, count: int, metrics: dict[str, float]) -> None:
        page = importlib.import_module("IPython.display")
        text = facts(count, self.total, time.monotonic() - self.began, metrics)
        line = page.HTML(
            f"<div>{html.escape(self.description)} "
            f'<progress value="{count}" max="{self.total}"></progress> '
            f"{html.escape(text)}</div>"
        )
        if self.place is None:
            self.place = page.display(line, display_id=True)
        else:
            self.place.update(line)

    def close(self) -> None:
        pass


class GivenBar:
    """The user's own bar, as tqdm's are: told how many more steps were done.

    A bar that was made by the user stays open, for more loops; one that a function
    made for this run is closed with it.
    """

    def __init__(self, given: Any, total: int) -> None:
        self.made_here = not callable(getattr(given, "update", None)) or isinstance(
            given, type
        )
        self.bar = given(total=total) if self.made_here else given
        self.count = 0

    def update(self, count: int, metrics: dict[str, float]) -> None:
        if metrics and hasattr(self.bar, "set_postfix"):
            self.bar.set_postfix(metrics)
        if count > self.count:
            self.bar.update(count - self.count)
            self.count = count

    def close(self) -> None:
        if self.made_here and hasattr(self.bar, "close"):
            self.bar.close()
