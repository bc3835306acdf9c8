"""Instructions that are text from the start, and what is known to stand in memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit import types as ty

#: bytes of the types that memory is made of
SIZES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}


class Line:
    """An instruction that is written: the type and name of its result, its text.

    And, of an index, what it is known to be a multiple of.
    """

    __slots__ = ("multiple", "name", "text", "type")

    def __init__(self, kind: ty.Kind, name: str, text: str) -> None:
        self.type, self.name, self.text = kind, name, text
        self.multiple = 1

    def get_reference(self) -> str:
        """The name, as llvmlite asks for it."""
        return self.name

    def __str__(self) -> str:
        return self.text


def multiple_of(index: Any) -> int:
    """A number that is known to divide an index; 0 if that is 0."""
    if isinstance(index, int):
        return index
    return index.multiple if isinstance(index, Line) else 1


class Place(Line):
    """A pointer into the memory `root`, at a known byte or (None) somewhere."""

    __slots__ = ("offset", "root")


class Held:
    """The values known to stand in one memory, all of `size` bytes.

    Those at known bytes are at multiples of the size, so they do not overlap.
    Those elsewhere, by the names of their pointers, may overlap anything.
    """

    __slots__ = ("at", "backwards", "last", "size", "somewhere")

    def __init__(self, size: int) -> None:
        self.size = size
        self.at: dict[int, ty.Value] = {}
        self.somewhere: dict[str, ty.Value] = {}
        self.last = 0  # the byte last stored to
        self.backwards = False  # whether a later one was stored to before

    def stored(self, offset: int | None) -> None:
        """A value was stored there."""
        if offset is not None:
            self.backwards |= offset < self.last
            self.last = offset


def size_of(kind: Any) -> int:
    """Bytes of a type in memory, 0 where that is not plain."""
    if isinstance(kind, ir.VectorType):
        return SIZES.get(str(kind.element), 0) * kind.count
    return SIZES.get(str(kind), 0)


def home(pointer: Any) -> tuple[Any, int | None]:
    """The memory that a pointer points into, and where; (None, None) if unknown."""
    if isinstance(pointer, Place):
        return pointer.root, pointer.offset
    call = ir.instructions.CallInstr  # of malloc
    own = (ir.AllocaInstr, ir.Argument, ir.GlobalVariable, call)
    if isinstance(pointer, own):
        return pointer, 0
    return None, None
