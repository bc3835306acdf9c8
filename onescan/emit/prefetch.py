"""Fetching ahead: memory of the next step, brought nearer while this one computes.

A long product keeps a processor busy without touching anything but its operands,
which lie in the L2 cache.  What the next step reads and writes is known by then,
and a line of it that is asked for here and there costs nothing; asked for at the
beginning of that step, everything would wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Index, add, as_value, scale

LINE = 64  # bytes that a cache fetches at once
#: how near memory is brought
FIRST_CACHE, SECOND_CACHE = 3, 2


@dataclass(frozen=True)
class Span:
    """Memory from `start` on."""

    start: ty.Value
    size: int  # in bytes
    written: bool

    def fetch(self, b: ty.Builder, part: Index, parts: int) -> None:
        """Ask for one of `parts` parts; what lies past the end does no harm."""
        lines = -(-self.size // (LINE * parts))
        first = scale(b, part, lines * LINE)
        for k in range(lines):
            place = as_value(b, add(b, first, k * LINE))
            address = b.gep(self.start, [place], source_etype=ty.I8)
            ask(b, address, self.written, SECOND_CACHE)


def ask(b: ty.Builder, address: ty.Value, written: bool, near: int) -> None:
    """Have the line at an address brought into a cache, to be read or written."""
    kind = ir.FunctionType(ir.VoidType(), [ty.PTR, ty.I32, ty.I32, ty.I32])
    fetch = b.module.declare_intrinsic("llvm.prefetch", [ty.PTR], kind)
    b.call(fetch, [address, *(ir.Constant(ty.I32, n) for n in (int(written), near, 1))])
