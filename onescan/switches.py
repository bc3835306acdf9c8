"""The switches of a process or region: which loops are ours, and which engine.

The value is part of JAX's own cache keys, so a function compiled under one
setting is compiled again, not reused, under another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import jax

from onescan.errors import ScanValueError

Engine = Literal["auto", "xla", "native"]


@dataclass(frozen=True)
class Settings:
    """What decides how a loop is lowered."""

    engine: Engine = "auto"
    installed: bool = False  # take every jax.lax.scan, not only onescan.scan
    strict: bool = False  # a loop left to XLA is an error
    check: bool = False  # run both engines and compare
    sequential: bool = False  # every recurrence in the order of its steps
    memory: int | None = None  # bytes for what passes take out of a loop


# Kept apart, so that install() inside a region is not undone by it.
_process = jax.make_user_context(Settings())
_region = jax.make_user_context(())  # ((field, value), ...)


def current() -> Settings:
    """The settings in force here and now."""
    return replace(_process.value, **dict(_region.value))


@contextmanager
def using(**changes: Any) -> Iterator[None]:
    """The settings of a region, for this thread."""
    merged = dict(_region.value) | changes
    with _region(tuple(sorted(merged.items()))):
        yield


def set_globally(**changes: Any) -> None:
    """Change the settings of the whole process."""
    _process.set_global(replace(_process.value, **changes))


def install(*, strict: bool = False, check: bool = False) -> None:
    """Let onescan take every `jax.lax.scan` of this process.

    Loops inside libraries are taken too. Functions compiled earlier are compiled
    again on their next call. Undo with `uninstall`.

    >>> import onescan
    >>> onescan.install()
    >>> onescan.is_installed()
    True
    >>> onescan.uninstall()
    """
    set_globally(installed=True, strict=strict, check=check)


def uninstall() -> None:
    """Undo `install`; `onescan.scan` keeps working."""
    set_globally(installed=False, strict=False, check=False)


def is_installed() -> bool:
    """Whether every `jax.lax.scan` is taken here."""
    return current().installed


@contextmanager
def engine(name: Engine) -> Iterator[None]:
    """Choose the engine for the loops compiled in this region.

    "auto" takes the native engine where it can and gains, "xla" is stock JAX,
    and "native" raises `EngineError` with the reason where the native engine
    cannot take a loop. What counts is where a function is *called*, not where it
    was defined.

    >>> import onescan
    >>> with onescan.engine("xla"):
    ...     carry, ys = onescan.scan(lambda c, x: (c + x, c), 0, [1, 2, 3])
    """
    if name not in get_args(Engine):
        raise ScanValueError(
            f'onescan.engine: "{name}" is not an engine. '
            f"Choose one of {', '.join(get_args(Engine))}."
        )
    with using(engine=name):
        yield


@contextmanager
def options(
    *, sequential: bool | None = None, memory: int | None = None
) -> Iterator[None]:
    """Choose what the passes may do to the loops compiled in this region.

    `sequential` keeps the order of the steps in every recurrence. Without it, a
    device with many more threads than a loop has lanes solves a recurrence such as
    ``c = a * c + x`` for chunks of time at once, which rounds differently.

    `memory` is the number of bytes that the work taken out of a loop may wait in;
    more is done in chunks of time. The default is twice what the loop holds, and
    at least 64 MiB.

    >>> import onescan
    >>> with onescan.options(sequential=True, memory=1 << 30):
    ...     carry, ys = onescan.scan(lambda c, x: (c + x, c), 0, [1, 2, 3])
    """
    if memory is not None and memory < 0:
        raise ScanValueError(
            f"onescan.options: memory is {memory}, and cannot be less than 0 bytes."
        )
    chosen = {"sequential": sequential, "memory": memory}
    with using(**{k: v for k, v in chosen.items() if v is not None}):
        yield
