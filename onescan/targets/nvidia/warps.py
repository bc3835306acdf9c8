"""Which warps of a block do the operations that have too little to do for all.

Such an operation takes warps of its own: two of them that need no barrier between
them then go on side by side.  But one that needs, of all that was done since the last
barrier, only what a single warp did, is given to that warp.  It then waits for none but
its own warp, where it would wait for the whole block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty

WARP = 32


@dataclass(eq=False)
class Few:
    """Threads that have something to do, and the memory that they touch."""

    first: Any  # the constant that is the number of the first of them
    warps: int
    among: int  # as many threads
    touched: set[int]


class Warps:
    """The warps of a block, and what they have touched since all of them met."""

    def __init__(self) -> None:
        self._next = 0  # the first thread that the operations before left over
        self._now: list[Few] = []  # of the phase that is being emitted
        self._by: dict[int, set[int | None]] = {}  # memory: its warps, None for all

    def begin(self) -> None:
        """A phase begins."""
        self._now = []

    def take(self, count: int, among: int, touched: set[int]) -> Any:
        """The number of the first of `count` threads: known when the phase ends."""
        first = ir.Constant(ty.I64, 0)
        self._now.append(Few(first, -(-count // WARP), among, touched))
        return first

    def warp_of(self, met: Iterable[int]) -> int | None:
        """The only warp that has touched this memory, if there is one."""
        warps = set().union(*(self._by.get(memory, ()) for memory in met))
        return warps.pop() if len(warps) == 1 else None

    def end(self, touched: set[int], warp: int | None) -> None:
        """A phase ends that touched this memory, and wants to sit in this warp."""
        for few in self._now:
            few.first.constant = self._seat(few) if warp is None else warp * WARP
        by = self._now[0].first.constant // WARP if self.is_one_warp(touched) else None
        for memory in touched:
            self._by.setdefault(memory, set()).add(by)

    def is_one_warp(self, touched: set[int]) -> bool:
        """Whether one warp alone touches all that this phase does."""
        one = len(self._now) == 1 and self._now[0].warps == 1
        return one and self._now[0].touched == touched

    def _seat(self, few: Few) -> int:
        size = few.warps * WARP
        first = self._next if self._next + size <= few.among else 0
        self._next = first + size
        return first

    def met(self) -> None:
        """All threads of the block have met."""
        self._by = {}
