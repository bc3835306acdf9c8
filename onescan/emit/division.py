"""Integer division as XLA has it, of numbers and of vectors."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.convert import like


def divide(
    b: ty.Builder, dtype: np.dtype, x: ty.Value, y: ty.Value
) -> tuple[ty.Value, ty.Value]:
    """XLA's integer division: x / 0 is all ones, x rem 0 is x, nothing traps."""
    zero, one, ones = like(x, 0), like(x, 1), like(x, -1)
    if _is_harmless(dtype, y):
        return _divided(b, dtype, x, y)
    by_zero = b.icmp_signed("==", y, zero)
    if not ty.is_signed(dtype):
        quotient, remainder = _divided(b, dtype, x, b.select(by_zero, one, y))
        return b.select(by_zero, ones, quotient), b.select(by_zero, x, remainder)
    lowest = like(x, -(1 << (8 * dtype.itemsize - 1)))
    overflow = b.and_(b.icmp_signed("==", x, lowest), b.icmp_signed("==", y, ones))
    safe = b.select(b.or_(by_zero, overflow), one, y)
    quotient, remainder = _divided(b, dtype, x, safe)
    quotient = b.select(by_zero, ones, quotient)
    remainder = b.select(by_zero, x, remainder)
    return (
        b.select(overflow, x, quotient),
        b.select(overflow, zero, remainder),
    )


def _is_harmless(dtype: np.dtype, y: ty.Value) -> bool:
    """Whether a divisor is known, and neither 0 nor -1."""
    if not isinstance(y, ir.Constant):
        return False
    numbers = y.constant if isinstance(y.constant, list | tuple) else [y]
    mask = (1 << 8 * dtype.itemsize) - 1
    return all(
        isinstance(n, ir.Constant)
        and isinstance(n.constant, int)
        and n.constant & mask not in (0, mask)
        for n in numbers
    )


def _divided(
    b: ty.Builder, dtype: np.dtype, x: ty.Value, y: ty.Value
) -> tuple[ty.Value, ty.Value]:
    """A quotient that exists, and what remains.

    No processor divides vectors of integers, but of floats, and a float with more bits
    than the integers have never rounds their quotient to the next integer.
    """
    signed = ty.is_signed(dtype)
    by_float = isinstance(x.type, ir.VectorType) and dtype.itemsize <= 4
    if not by_float or isinstance(y, ir.Constant):  # LLVM multiplies by a constant
        if signed:
            return b.sdiv(x, y), b.srem(x, y)
        return b.udiv(x, y), b.urem(x, y)
    element = ir.DoubleType() if dtype.itemsize == 4 else ir.FloatType()
    wide = ir.VectorType(element, x.type.count)
    up, down = (b.sitofp, b.fptosi) if signed else (b.uitofp, b.fptoui)
    quotient = down(b.fdiv(up(x, wide), up(y, wide)), x.type)
    return quotient, b.sub(x, b.mul(quotient, y))
