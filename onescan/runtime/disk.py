"""Files in the user's cache, for the processes that come after this one.

A file's name is a hash of all that its content follows from, so nothing is ever out of
date; it is written under another name and then renamed, so any number of processes may
write at the same time.  A file that cannot be read counts as none, and where none can
be written, the next process does the work again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def folder(kind: str) -> Path:
    """Where files of a kind are: the user's cache, as other programs have it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "onescan" / kind


def key_of(*parts: object) -> str:
    """A hash of what a content follows from."""
    text = "\n".join(map(str, parts))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def read(kind: str, name: str) -> bytes | None:
    """What a file holds, if it is there."""
    try:
        return (folder(kind) / name).read_bytes()
    except (OSError, RuntimeError):  # such as that nobody is at home
        return None


def write(kind: str, name: str, content: bytes) -> None:
    """Keep a content, if that is possible."""
    try:
        place = folder(kind)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=place, suffix=".tmp", delete=False
        ) as file:
            file.write(content)
        os.replace(file.name, place / name)
    except (OSError, RuntimeError):
        return
