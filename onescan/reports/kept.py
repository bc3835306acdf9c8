"""What loops were given when a program ran, so that they can be walked through.

A loop inside a compiled function has no values when it is lowered.  `start` has every
loop that is lowered from then on hand its arguments to Python, and the first ones are
kept, by the row of the report that counts the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from onescan import compat
from onescan.loop import Loop, nbytes

#: bytes of a loop's arguments that are kept, and loops of which they are
MOST, LOOPS = 16 << 20, 64

_active = False
_values: dict[Hashable, list[np.ndarray] | str] = {}  # or why there are none
_lock = threading.Lock()


def start() -> None:
    """Keep the arguments of the loops that are compiled from now on."""
    global _active
    _active = True


def stop() -> None:
    """Keep no more, and forget what was kept."""
    global _active
    _active = False
    _values.clear()


def is_active() -> bool:
    return _active


def keep(ctx: Any, loop: Loop, row: Hashable, args: Sequence[Any]) -> None:
    """Put a call into a program that keeps a loop's arguments, once it runs."""
    if not _active or row in _values or len(_values) >= LOOPS:
        return
    types = [compat.physical(aval) for aval in ctx.avals_in]
    if why := _reason(ctx, nbytes(types)):
        _values[row] = why
        return
    around = ctx.replace(avals_in=types, avals_out=[])
    compat.emit_host_call(around, partial(_receive, row), args)


def _reason(ctx: Any, size: Any) -> str | None:
    """Why the arguments of a loop are not kept."""
    if compat.num_devices(ctx) > 1:
        return "it runs on several devices"
    if not isinstance(size, int):
        return "its shapes are not known before it runs"
    if size > MOST:
        told = f"{size / 1e6:,.0f} MB"
        return f"its arguments are {told}, and up to {MOST / 1e6:.0f} MB are kept"
    return None


def _receive(row: Hashable, *args: Any) -> tuple[()]:
    with _lock:
        if row not in _values:
            _values[row] = [np.array(arg) for arg in args]
    return ()


def values_of(row: Hashable) -> list[np.ndarray] | str | None:
    """What a loop was given first, or why that is not known."""
    return _values.get(row)
