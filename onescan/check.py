"""Run both engines on every call of a loop and compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onescan.loop import Loop
from onescan.pipeline import Native


def lower_both(
    ctx: Any, loop: Loop, native: Native, args: Sequence[Any], params: dict[str, Any]
) -> Sequence[Any]:
    """Lower both engines, and a comparison that raises `CheckError`."""
    raise NotImplementedError
