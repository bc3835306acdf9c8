"""What became of a loop: a kernel and how to call it, or why XLA keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from onescan.tune.speed import Speed

#: an ordered set of notes
Seen = dict[str, None]


@dataclass(frozen=True)
class Native:
    """A loop compiled by us: `lower(ctx, *args)` puts the call into the program."""

    lower: Callable[..., Sequence[Any]]
    passes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what they did
    seen: Seen = field(default_factory=dict)  # what `lower` found, as notes
    speed: Speed | None = None  # of a step, by both engines, where it is known


@dataclass(frozen=True)
class Left:
    """A loop left to XLA, and the reason in one sentence.

    `lower`, where there is one, gives XLA what the passes made of it.
    """

    reason: str
    passes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lower: Callable[..., Sequence[Any]] | None = None
    speed: Speed | None = None
