"""Ctrl-C during a run: the first asks it to stop after its chunk, a second stops it."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Interrupts:
    """While entered, Ctrl-C sets `asked` instead of raising.

    Only the main thread of a program is told of signals; elsewhere nothing changes.

    >>> with Interrupts() as interrupts:
    ...     signal.raise_signal(signal.SIGINT)
    ...     print(interrupts.asked())
    True
    """

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = None

    def asked(self) -> bool:
        return self._asked

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, signum: int, frame: Any) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
