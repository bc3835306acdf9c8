"""`Speed`: how long a step of a loop takes on each engine, predicted or measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Speed:
    """Seconds of one step, where they are known.

    >>> Speed(native=2e-6, xla=9e-6).ratio
    4.5
    """

    native: float | None = None
    xla: float | None = None
    measured: bool = False  # by running both, rather than predicted
    quiet: bool = True  # while others left the machine to us

    @property
    def ratio(self) -> float | None:
        """How many times faster our kernel is."""
        if not self.native or not self.xla:
            return None
        return self.xla / self.native

    def __str__(self) -> str:
        """Short, for a column: "2.0 us, XLA 9.0 us"."""
        parts = [_time(self.native)] if self.native else []
        parts += [f"XLA {_time(self.xla)}"] if self.xla else []
        return ", ".join(parts)

    @property
    def how_known(self) -> str:
        return "measured" if self.measured else "predicted"


def _time(seconds: float) -> str:
    """Three digits in the unit that reads best."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
