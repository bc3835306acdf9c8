"""The directory of a run's checkpoints: whose it is, and what the run was.

    onescan.json   what must not change when the run resumes; written first, at once
    onescan.lock   held while a process trains here; the system lets go of it at its end
    metrics.bin    what was measured in each step
    steps/         the checkpoints, by orbax, named by the number of steps taken

A directory that is not like this is left alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from onescan.errors import CheckpointError

MARKER = "onescan.json"
LOCK = "onescan.lock"
STEPS = "steps"
METRICS = "metrics.bin"
FORMAT = 1
SAID = "onescan.train.fit: checkpoint_dir="


class Directory:
    """One directory, locked for this process."""

    def __init__(self, path: Any) -> None:
        self.path = Path(path).absolute()
        self._lock: Any = None

    def existing(self) -> dict[str, Any] | None:
        """What the run in it was, or None if there is none; or an error."""
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(f"{SAID}{self.path} is a file, not a directory.")
        there = self.path.exists()
        names = {entry.name for entry in self.path.iterdir()} if there else set()
        if MARKER not in names:
            if strange := sorted(n for n in names if not n.startswith("onescan.")):
                raise CheckpointError(
                    f"{SAID}{self.path} holds {strange[0]!r} and no {MARKER}, so it is "
                    "not a directory of fit. Nothing in it was changed; choose an "
                    "empty or a new one."
                )
            return None
        try:
            found = json.loads((self.path / MARKER).read_text())
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}")
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise CheckpointError(
                f"{SAID}{self.path}: {MARKER} cannot be read ({error}). Nothing was "
                "changed; restore the file, or choose another directory."
            ) from None
        return found

    def begin(self, run: dict[str, Any]) -> None:
        """Make it the directory of a new run."""
        written = self.path / f"{MARKER}.{os.getpid()}"
        with open(written, "w") as file:
            json.dump({"format": FORMAT} | run, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(written, self.path / MARKER)

    def lock(self) -> None:
        """Keep other processes from training here."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            import fcntl
        except ImportError:  # not on this system
            return
        self._lock = open(self.path / LOCK, "w")  # noqa: SIM115 (closed by unlock)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise CheckpointError(
                f"{SAID}{self.path} is in use: another process trains there now."
            ) from None

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()


def check_same_run(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """That the run in the directory is the one that `fit` was asked for."""
    for key in ("state", "metrics"):
        before, now = dict(found[key]), dict(wanted[key])
        for leaf in [*before, *now]:
            if before.get(leaf) != now.get(leaf):
                raise CheckpointError(
                    f"{SAID}{path} belongs to another run: there {leaf} is "
                    f"{before.get(leaf, 'missing')}, here {now.get(leaf, 'missing')}. "
                    "Nothing was changed; choose another directory, or go back to the "
                    "model and optimiser it began with."
                )
    for key in ("batches", "chunk"):
        if found[key] != wanted[key]:
            raise CheckpointError(
                f"{SAID}{path} belongs to another run: there {key} is {found[key]}, "
                f"here {wanted[key]}. Nothing was changed; choose another directory, "
                f"or give the same {key}."
            )
