"""What became of a loop: a kernel and how to call it, or why XLA keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onescan.loop import LeaveToXla
from onescan.tune.choose import Choice
from onescan.tune.speed import Speed


class Slower(LeaveToXla):
    """A loop that XLA runs faster, and what shows it."""

    def __init__(self, choice: Choice) -> None:
        super().__init__(choice.reason)
        self.choice = choice


@dataclass
class Seen:
    """What was found where a kernel's call was put into a program."""

    notes: dict[str, None] = field(default_factory=dict)  # an ordered set
    speed: Speed | None = None  # if a trial measured it

    def clear(self) -> None:
        """Forget what was found in another place."""
        self.notes.clear()
        self.speed = None


@dataclass(frozen=True)
class Native:
    """A loop compiled by us: `lower(ctx, *args)` puts the call into the program."""

    lower: Callable[..., Sequence[Any]]
    passes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what they did
    seen: Seen = field(default_factory=Seen)  # what `lower` found
    speed: Speed | None = None  # of a step, by both engines, where it is known

    def as_seen(self) -> Native:
        """The same with what `lower` found."""
        notes = (*self.notes, *self.seen.notes)
        return replace(self, notes=notes, speed=self.seen.speed or self.speed)


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
    whole: bool = False  # with all loops inside
