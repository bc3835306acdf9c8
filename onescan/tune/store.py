"""What was measured before, on disk: one small file for each kernel."""

from __future__ import annotations

import json
from pathlib import Path

from onescan.runtime import disk
from onescan.tune.speed import Speed

KIND = "measured"
#: the way of measuring, by number: with another one, what was measured is forgotten
WAY = 3


def folder() -> Path:
    """Where the files are."""
    return disk.folder(KIND)


def key_of(*parts: object) -> str:
    """A hash of what a measurement depends on."""
    return disk.key_of(WAY, *parts)


def read(key: str) -> Speed | None:
    """What was measured, if it was."""
    try:
        found = json.loads(disk.read(KIND, f"{key}.json") or b"")
        return Speed(float(found["native"]), float(found["xla"]), measured=True)
    except (ValueError, KeyError, TypeError):
        return None


def write(key: str, speed: Speed) -> None:
    """Keep a measurement; where that is not possible, the next process measures."""
    text = json.dumps({"native": speed.native, "xla": speed.xla})
    disk.write(KIND, f"{key}.json", text.encode())
