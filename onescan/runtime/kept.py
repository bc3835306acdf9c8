"""The code of kernels, kept for the next process.

LLVM takes most of the time in which a kernel is made, and the same text gives the same
code.  So what it made is kept in the user's cache, and a program that is started again
pays for its plans only.  As with JAX's own cache of compiled programs,
``jax_enable_compilation_cache`` turns that off.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from onescan.runtime import disk
from onescan.version import VERSION

KIND = "code"
#: bytes of all files above which those that were not used for longest go, and below
#: which the others stay
MOST, ENOUGH = 256 << 20, 192 << 20
#: seconds after which a file that is used is marked as used again
DAY = 86400
#: bytes of a content's hash, in front of it
DIGEST = 32


def code(
    follows_from: str, makers: tuple[str, ...], make: Callable[[], bytes]
) -> bytes:
    """The code that `make` gives for a text, made now or in an earlier process.

    `makers` are the files of the modules that make it: written differently, they may
    make different code.
    """
    config: Any = jax.config
    if not config.jax_enable_compilation_cache:
        return make()
    name = disk.key_of(VERSION, *map(_written, makers), follows_from)
    if (found := _read(name)) is not None:
        return found
    made = make()
    _make_room()
    packed = zlib.compress(made, level=1)
    disk.write(KIND, name, hashlib.sha256(packed).digest() + packed)
    return made


def _read(name: str) -> bytes | None:
    """What was kept, if every byte of it is there."""
    content = disk.read(KIND, name)
    if content is None:
        return None
    digest, packed = content[:DIGEST], content[DIGEST:]
    if hashlib.sha256(packed).digest() != digest:
        return None
    _mark_as_used(disk.folder(KIND) / name)
    return zlib.decompress(packed)


def _mark_as_used(path: Path) -> None:
    try:
        if time.time() - path.stat().st_mtime > DAY:
            os.utime(path)
    except OSError:
        return


@functools.cache
def _make_room() -> None:
    """Once in a process: without what nobody used for long, where there is too much."""
    try:
        files = [(path, path.stat()) for path in disk.folder(KIND).iterdir()]
    except OSError:
        return
    size = sum(stat.st_size for _, stat in files)
    if size <= MOST:
        return
    for path, stat in sorted(files, key=lambda file: file[1].st_mtime):
        if size <= ENOUGH:
            return
        size -= stat.st_size
        try:
            path.unlink()
        except OSError:
            continue


@functools.cache
def _written(path: str) -> str:
    """How a module is written, as a hash; nothing where its text is not there."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
