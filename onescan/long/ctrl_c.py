"""Ctrl-C for loops that call Python; without a compiler nobody looks out for it."""

from __future__ import annotations

from functools import cache
from typing import Protocol

from onescan.lowering import llvm


class CtrlC(Protocol):
    """What a loop does about Ctrl-C, as `onescan.targets.cpu.interrupts` tells."""

    def listen(self) -> None: ...

    def count(self) -> int: ...

    def hold(self, seconds: float = 0) -> None: ...

    def interrupt(self) -> None: ...


class Deaf:
    """Ctrl-C is Python's alone: it is answered when the program has ended."""

    def listen(self) -> None: ...

    def count(self) -> int:
        return 0

    def hold(self, seconds: float = 0) -> None: ...

    def interrupt(self) -> None: ...


@cache
def ctrl_c() -> CtrlC:
    """Ctrl-C in this process."""
    if llvm.trouble():
        return Deaf()
    from onescan.targets.cpu import handler  # which cannot be imported without llvmlite

    return handler.ctrl_c()
