"""What of a run is kept on disk, and when."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from onescan.errors import CheckpointError
from onescan.train.checkpoints import Checkpoints
from onescan.train.directory import METRICS, SAID, Directory, check_same_run
from onescan.train.sources import Position


class Resumed(NamedTuple):
    """Where a run goes on."""

    arrays: list[Any]
    position: Position
    ended: str | None  # by `until`


class NoStore:
    """A run that keeps nothing."""

    chunk: int | None = None
    metrics_path: Path | None = None

    def open(self, run: dict[str, Any], arrays: list[Any]) -> Resumed:
        return Resumed(arrays, Position(), None)

    def due(self) -> bool:
        return False

    def save(self, arrays: list[Any], position: Position, ended: str | None) -> None:
        pass

    def wait(self) -> None:
        pass

    def close(self) -> None:
        pass


class Store(NoStore):
    """The directory of a run, with a checkpoint every so many seconds."""

    def __init__(self, path: Any, keep: int, resume: bool, every: float) -> None:
        self._directory = Directory(path)
        self._keep = keep
        self._every = every
        self._last = time.monotonic()
        self._checkpoints: Checkpoints | None = None
        self._found = self._directory.existing()
        if self._found is not None and not resume:
            raise CheckpointError(
                f"{SAID}{self._directory.path} holds a run already, and resume is "
                "False. Nothing was changed; choose another directory, or resume."
            )
        self.chunk = None if self._found is None else self._found["chunk"]
        self.metrics_path = self._directory.path / METRICS

    def open(self, run: dict[str, Any], arrays: list[Any]) -> Resumed:
        """Begin the run that is described, or find where it was."""
        if self._found is not None:
            check_same_run(self._directory.path, self._found, run)
        self._directory.lock()
        if self._found is None:
            self._directory.begin(run)
        self._checkpoints = Checkpoints(self._directory, self._keep)
        if self._checkpoints.latest() is None:
            return Resumed(arrays, Position(), None)
        return Resumed(*self._checkpoints.restore(arrays))

    def due(self) -> bool:
        assert self._checkpoints is not None
        waited = time.monotonic() - self._last
        return waited >= self._every and not self._checkpoints.busy()

    def save(self, arrays: list[Any], position: Position, ended: str | None) -> None:
        assert self._checkpoints is not None
        self._checkpoints.save(arrays, position, ended)
        self._last = time.monotonic()

    def wait(self) -> None:
        assert self._checkpoints is not None
        self._checkpoints.wait()

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._directory.unlock()
