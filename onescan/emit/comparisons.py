"""Numbers compared, and the larger and smaller of two, as XLA has them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.convert import intrinsic
from onescan.emit.math.features import is_x86


def maximum(b: ty.Builder, dtype: Any, x: ir.Value, y: ir.Value) -> ir.Value:
    """The larger; NaN if either is NaN."""
    return _extreme(b, dtype, x, y, ">")


def minimum(b: ty.Builder, dtype: Any, x: ir.Value, y: ir.Value) -> ir.Value:
    """The smaller; NaN if either is NaN."""
    return _extreme(b, dtype, x, y, "<")


def _extreme(
    b: ty.Builder, dtype: Any, x: ir.Value, y: ir.Value, sign: str
) -> ir.Value:
    if not ty.is_float(dtype):
        return b.select(compare(b, dtype, sign, x, y), x, y)
    known = isinstance(x, ir.Constant) or isinstance(y, ir.Constant)
    if known or not is_x86(b):  # -0 is smaller than 0, as in XLA
        return intrinsic(b, "llvm.maximum" if sign == ">" else "llvm.minimum", x, y)
    if sign == "<":
        return _smaller(b, x, y)
    return b.fneg(_smaller(b, b.fneg(x), b.fneg(y)))


def _smaller(b: ty.Builder, x: ty.Value, y: ty.Value) -> ty.Value:
    """The smaller of two floats on x86, in three instructions.

    Its own gives the second of two zeros, or of two of which one is NaN: asked both
    ways, it gives both, and their bits together are those of -0 or a NaN.
    """
    element = ty.I64 if ty.element_type(x) == ty.F64 else ty.I32
    kind = ty.with_width(element, ty.width_of(x))
    ways = [b.select(b.fcmp_ordered("<", u, v), u, v) for u, v in ((x, y), (y, x))]
    return b.bitcast(b.or_(*(b.bitcast(way, kind) for way in ways)), x.type)


def compare(b: ty.Builder, dtype: Any, sign: str, x: ir.Value, y: ir.Value) -> ir.Value:
    if ty.is_float(dtype):
        if sign == "!=":
            return b.fcmp_unordered(sign, x, y)
        return b.fcmp_ordered(sign, x, y)
    if ty.is_signed(dtype):
        return b.icmp_signed(sign, x, y)
    return b.icmp_unsigned(sign, x, y)
