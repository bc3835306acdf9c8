"""Constants and vector types: made once, and short in the text of the IR."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from llvmlite import ir

I32 = ir.IntType(32)
I64 = ir.IntType(64)


class Splat(ir.Constant):
    """A vector constant of one repeated element, written once."""

    def _get_reference(self) -> str:
        return f"splat ({self.constant[0]})"


class Nothing(ir.Constant):
    """A value of which nothing is read, or all is replaced."""

    def _get_reference(self) -> str:
        return "poison"


@cache
def vector(element: Any, width: int) -> Any:
    """The vector type: one object, so that its text is written once."""
    return ir.VectorType(element, width)


@cache
def nothing(kind: Any) -> Any:
    return Nothing(kind, ir.Undefined)


@lru_cache(1 << 12)
def integer(value: int) -> Any:
    """An i64, as indices are."""
    return ir.Constant(I64, value)


@lru_cache(1 << 12)
def positions(*places: int | None) -> Any:
    """Positions in a vector, as shuffles take them; None is any."""
    kind, anything = vector(I32, len(places)), nothing(I32)
    if None not in places:
        return ir.Constant(kind, places)
    known = [anything if p is None else ir.Constant(I32, p) for p in places]
    return ir.Constant(kind, known)


def repeated(kind: Any, element: ir.Constant) -> ir.Constant:
    """A constant as a constant of `kind`, in every lane if that is a vector."""
    return Splat(kind, element) if isinstance(kind, ir.VectorType) else element
