"""What became of every loop that was lowered, and why."""

from __future__ import annotations

from onescan.loop import Loop
from onescan.pipeline import Left, Native


def record(loop: Loop, outcome: Native | Left, seconds: float) -> None:
    """Add one lowered loop to the report."""
