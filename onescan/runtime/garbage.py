"""Python's garbage collector waits while a loop is compiled.

Instructions are many small objects, and making them starts collections, which look at
every object of the program again: with large libraries loaded 0.15 to 0.4 s each.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_waiting = 0  # compilations that are under way
_was_on = False


@contextmanager
def no_collections() -> Iterator[None]:
    """Nothing is collected in here, nor while another thread is in here."""
    global _waiting, _was_on
    with _lock:
        if _waiting == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _waiting += 1
    try:
        yield
    finally:
        with _lock:
            _waiting -= 1
            if _waiting == 0 and _was_on:
                gc.enable()
