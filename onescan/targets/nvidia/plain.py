"""The builder of code that the threads of a block share.

Barriers and the accesses between them are found in the instructions themselves, so they
are llvmlite's own objects; `emit/builder.py` writes text.
"""

from __future__ import annotations

from math import inf
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.budget import require_short


class Plain(ir.IRBuilder):
    """llvmlite's own builder, which counts what it writes."""

    def __init__(self, block: ir.Block) -> None:
        super().__init__(block)
        self.written = 0
        #: instructions from which a kernel takes too long to compile
        self.longest = inf
        #: how often what is written now will run, as far as that is known
        self.trips = 1.0
        #: by instruction and type: how often it will run
        self.runs: dict[tuple[str, str], float] = {}
        #: by name of a float32 that was a float16 in memory: that one's bits
        self.halves: dict[tuple[str, Any], ty.Value] = {}

    def _insert(self, instr: Any) -> None:
        self.written += 1
        require_short(self.written, self.longest)
        called = getattr(getattr(instr, "callee", None), "name", "")
        key = f"{instr.opname} {called}".strip(), str(instr.type)
        self.runs[key] = self.runs.get(key, 0.0) + self.trips
        super()._insert(instr)
