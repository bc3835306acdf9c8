"""A builder that notes which memory is read and written, for barriers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.targets.nvidia.mbarriers import Mbarriers
from onescan.targets.nvidia.plain import Plain


class AccessBuilder(Plain):
    """A builder that notes which memory its loads and stores touch."""

    def __init__(self, block: ir.Block, shared: set[int], team: int) -> None:
        super().__init__(block)
        self.ignored: set[int] = set()
        self.shared = shared  # memory that every block has for itself
        self.team = team  # blocks that work together
        self.distances: list[ty.Value] = []  # from here to the memory of each of them
        self.letters: dict[int, Mbarriers] = {}  # memory that goes by mail, and how
        self.step: ty.Value = None  # the step in which mail is being sent
        self.reads: set[int] = set()
        self.writes: set[int] = set()

    def load(self, ptr: Any, *args: Any, **options: Any) -> Any:
        self._note(self.reads, ptr)
        return super().load(ptr, *args, **options)

    def store(self, value: Any, ptr: Any, *args: Any, **options: Any) -> Any:
        self._note(self.writes, ptr)
        if self.team == 1 or id(_root(ptr)) not in self.shared:
            return super().store(value, ptr, *args, **options)
        mail = self.letters.get(id(_root(ptr)))
        if mail is not None and self.step is not None:
            mail.send(self, value, ptr, mail.box(self, self.step))
            return None
        here = self.ptrtoint(ptr, ty.I64)
        for far in self.distances:
            there = self.inttoptr(self.add(here, far), ty.PTR)
            super().store(value, there, *args, **options)
        return None

    def store_there(self, value: Any, ptr: Any, align: int) -> None:
        """Store into the memory of another block, which reads it in the next step."""
        super().store(value, ptr, align=align)

    def load_there(self, ptr: Any, kind: ty.Kind, align: int) -> Any:
        """Load from the memory of another block."""
        return super().load(ptr, typ=kind, align=align)

    def _note(self, seen: set[int], pointer: Any) -> None:
        root = _root(pointer)
        if not isinstance(root, ir.AllocaInstr) and id(root) not in self.ignored:
            seen.add(id(root))


def _root(pointer: Any) -> Any:
    """The beginning of the memory that a pointer points into."""
    while isinstance(pointer, ir.GEPInstr):
        pointer = pointer.pointer
    return pointer
