"""Asking the system for x86's matrix unit.

Its tiles are 8 KB that Linux keeps for every thread that uses them, so a process asks
first, once, for all of its threads and those of its children.
"""

from __future__ import annotations

import ctypes
import functools
import sys

ARCH_PRCTL, REQUEST, TILES = 158, 0x1023, 18


@functools.cache
def may_use_tiles() -> bool:
    """Whether this process may use the unit, on a processor that has it."""
    if sys.platform != "linux":
        return False
    system = ctypes.CDLL(None, use_errno=True)
    return system.syscall(ARCH_PRCTL, REQUEST, TILES) == 0
