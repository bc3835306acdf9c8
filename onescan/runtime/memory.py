"""How much more memory this process may take.

LLVM ends the process where it gets none, so it is asked for nothing that might be
refused: under a limit (`ulimit -v`) that leaves too little, a loop goes to XLA.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from onescan.loop import LeaveToXla

try:
    import resource
except ImportError:  # a system without such limits
    resource: Any = None

STATM = Path("/proc/self/statm")
#: bytes that LLVM takes before it has compiled anything, and for a byte of IR
#: (`benchmarks/compile_time.py` prints both)
LLVM = 64 << 20
EACH = 64
#: bytes of its library, until that is loaded, and those that XLA needs for its turn:
#: its threads end the process, too, if they get none (`tests/emit/test_code_size.py`)
LIBRARY = 160 << 20
XLA = 32 << 20


def left() -> int | None:
    """Bytes of address space this process may still take; None is any number."""
    if resource is None or not STATM.exists():
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    pages = int(STATM.read_text().split()[0])
    return limit - pages * os.sysconf("SC_PAGE_SIZE")


def require(size: int = 0) -> None:
    """Raise `LeaveToXla` where LLVM might get too little for so many bytes of IR."""
    here, needed = left(), LLVM + EACH * size + XLA
    if "llvmlite.binding" not in sys.modules:
        needed += LIBRARY
    if here is not None and here < needed:
        raise LeaveToXla(
            f"this process may take {max(here, 0) >> 20} MiB more memory, and "
            f"compiling the loop may need {needed >> 20}"
        )
