"""What was measured before, on disk: one small file for each kernel.

A file's name is a hash of all that a measurement depends on, so nothing is ever out of
date; it is written under another name and then renamed, so any number of processes may
write at the same time.  A file that cannot be read counts as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from onescan.tune.speed import Speed

#: the way of measuring, by number: with another one, what was measured is forgotten
WAY = 3


def folder() -> Path:
    """Where the files are: the user's cache, as other programs have it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "onescan" / "measured"


def key_of(*parts: object) -> str:
    """A hash of what a measurement depends on."""
    text = "\n".join(map(str, (WAY, *parts)))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def read(key: str) -> Speed | None:
    """What was measured, if it was."""
    try:
        found = json.loads((folder() / f"{key}.json").read_text())
        return Speed(float(found["native"]), float(found["xla"]), measured=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None


def write(key: str, speed: Speed) -> None:
    """Keep a measurement; where that is not possible, the next process measures."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        text = json.dumps({"native": speed.native, "xla": speed.xla})
        with tempfile.NamedTemporaryFile(
            "w", dir=folder(), suffix=".tmp", delete=False
        ) as file:
            file.write(text)
        os.replace(file.name, folder() / f"{key}.json")
    except (OSError, RuntimeError):
        return
