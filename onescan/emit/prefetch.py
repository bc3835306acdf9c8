"""Fetching ahead: memory of the next step, brought nearer while this one computes.

A long product keeps a processor busy without touching anything but its operands,
which lie in the second cache.  What the next step reads and writes is known by then,
and a line of it that is asked for here and there costs nothing; asked for at the
beginning of that step, everything would wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Index, add, as_value, scale

LINE = 64  # bytes that a cache fetches at once


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
            b.call(
                _prefetch(b.module),
                [address, _i32(self.written), _i32(2), _i32(1)],
            )


def _prefetch(module: ir.Module) -> ir.Function:
    kind = ir.FunctionType(ir.VoidType(), [ty.PTR, ty.I32, ty.I32, ty.I32])
    return module.declare_intrinsic("llvm.prefetch", [ty.PTR], kind)


def _i32(value: int) -> ty.Value:
    return ir.Constant(ty.I32, int(value))
