"""`Profile`: how often the instructions of a kernel run, counted as it is emitted.

The trip count of every loop but `while` is known, so the emitter knows how often each
instruction will run.  That is what a prediction of a kernel's time rests on, and what
shows that no work is done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: an instruction and the type of its result, as LLVM writes them
Instruction = tuple[str, str]


@dataclass(frozen=True)
class Profile:
    """What one tile of a kernel does in all steps of its loop."""

    runs: Mapping[Instruction, float]  # how often each instruction runs
    elements: Mapping[int, float]  # by id of an equation: elements computed
    tiles: int = 1
    threads: bool = False
    held: int = 0  # bytes of values that a step of the tile holds
    heap: int = 0  # and those of them that are not on a stack
