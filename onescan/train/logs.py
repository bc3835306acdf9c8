"""Where metrics go while a run goes on: JSON lines, CSV, and the user's functions.

A file has one line for each step. In a run that resumes, the lines from there on are
taken out first: they come again, the same.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from onescan.errors import ScanTypeError, ScanValueError
from onescan.train.metrics import Layout

Callback = Callable[[int, Any], Any]


class Log(Protocol):
    """Something that is told the metrics of every chunk."""

    def add(self, first: int, metrics: Any) -> None:
        """The metrics of the steps from number `first` on."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


def logs_of(log: Any, layout: Layout, resumed_at: int) -> list[Log]:
    """What the `log` argument of `fit` asks for."""
    if log is None:
        return []
    if isinstance(log, list | tuple):
        return [made for one in log for made in logs_of(one, layout, resumed_at)]
    if callable(log):
        return [Callbacks(log)]
    if not isinstance(log, str | os.PathLike):
        raise ScanTypeError(
            "onescan.train.fit: log takes a path that ends in .jsonl or .csv, a "
            f"function (step, metrics), or a list of these, but it is {log!r}."
        )
    path = Path(log)
    kinds = {".jsonl": JsonLines, ".csv": CommaSeparated}
    if path.suffix not in kinds:
        raise ScanValueError(
            f"onescan.train.fit: log={str(log)!r} ends in neither .jsonl nor .csv, so "
            "its format is unknown. Rename it."
        )
    return [kinds[path.suffix](path, layout, resumed_at)]


class Callbacks:
    """The user's function, called after every chunk."""

    def __init__(self, function: Callback) -> None:
        self._function = function

    def add(self, first: int, metrics: Any) -> None:
        self._function(first + _count(metrics), metrics)

    def close(self) -> None:
        pass


class JsonLines:
    """One JSON object a step: ``{"step": 0, "loss": 0.5}``."""

    def __init__(self, path: Path, layout: Layout, resumed_at: int) -> None:
        self._layout = layout
        self._file = _opened(path, lambda line: json.loads(line)["step"], resumed_at)

    def add(self, first: int, metrics: Any) -> None:
        columns = {k: v.tolist() for k, v in self._layout.scalars(metrics).items()}
        rows = zip(*columns.values(), strict=True)
        for step, row in enumerate(rows, first):
            entry = {"step": step} | dict(zip(columns, row, strict=True))
            self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class CommaSeparated:
    """One row a step, under a row of names."""

    def __init__(self, path: Path, layout: Layout, resumed_at: int) -> None:
        self._layout = layout
        self._file = _opened(path, _csv_step, resumed_at)
        self._rows = csv.writer(self._file, lineterminator="\n")
        if self._file.tell() == 0:
            scalar = (s.shape == () for s in layout.specs)
            names = [n for n, s in zip(layout.names, scalar, strict=True) if s]
            self._rows.writerow(["step", *names])

    def add(self, first: int, metrics: Any) -> None:
        columns = [v.tolist() for v in self._layout.scalars(metrics).values()]
        rows = zip(*columns, strict=True)
        self._rows.writerows([step, *row] for step, row in enumerate(rows, first))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _csv_step(line: str) -> int:
    first = line.split(",")[0].strip()
    return -1 if first == "step" else int(first)


def _opened(path: Path, step_of: Callable[[str], int], resumed_at: int) -> Any:
    """The file to append to, with nothing but the steps before `resumed_at`."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    kept: list[str] = []
    for number, line in enumerate(lines):
        try:
            step = step_of(line)
        except (ValueError, KeyError, TypeError):
            if number == 0 or number < len(lines) - 1:  # a killed run breaks the last
                raise ScanValueError(
                    f"onescan.train.fit: the log {path} is already there, and its line "
                    f"{number + 1} is not one of a training log. Nothing was changed; "
                    "choose another path."
                ) from None
            continue
        if step < resumed_at and resumed_at:
            kept.append(line)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "w", newline="")  # noqa: SIM115 (closed by close)
    file.writelines(kept)
    return file


def last_values(layout: Layout, metrics: Any) -> dict[str, float]:
    """The last number of each scalar metric."""
    columns = layout.scalars(metrics)
    return {k: float(v[-1]) for k, v in columns.items() if len(v) and _real(v)}


def _real(values: np.ndarray) -> bool:
    return not np.iscomplexobj(values)


def _count(metrics: Any) -> int:
    leaves = jax.tree.leaves(metrics)
    return len(leaves[0]) if leaves else 0
