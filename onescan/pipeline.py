"""The way of one loop, top to bottom: passes, plan, emission, registration.

`compile_loop` either gives back a kernel and how to call it, or the reason why
XLA keeps the loop.  The names of the steps are the names that `report()` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onescan.loop import Loop


@dataclass(frozen=True)
class Native:
    """A loop compiled by us: `lower(ctx, *args)` puts the call into the program."""

    lower: Callable[..., Sequence[Any]]
    passes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Left:
    """A loop left to XLA, and the reason in one sentence."""

    reason: str
    passes: tuple[str, ...] = ()


def compile_loop(loop: Loop, platform: str) -> Native | Left:
    """Decide about one loop, and compile it if it is ours."""
    return Left("the native engine is not built yet")
