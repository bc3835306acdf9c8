"""Integer division as XLA has it, of numbers and of vectors."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.convert import leading_zeros, like
from onescan.emit.math.features import is_x86

#: the last 32 of 64 bits
HALF = (1 << 32) - 1


def divide(
    b: ty.Builder, dtype: np.dtype, x: ty.Value, y: ty.Value
) -> tuple[ty.Value, ty.Value]:
    """XLA's integer division: x / 0 is all ones, x rem 0 is x, nothing traps."""
    zero, one, ones = like(x, 0), like(x, 1), like(x, -1)
    if _is_harmless(dtype, y):
        if _is_by_halves(b, dtype, x) and (divisor := _only_number(dtype, y)):
            return _by_known(b, dtype, x, divisor)
        return _divided(b, dtype, x, y)
    if _is_by_float(dtype, x) and (divisor := ty.in_all_lanes(b, y)) is not None:
        return _by_one(b, dtype, x, divisor)
    by_zero = b.icmp_signed("==", y, zero)
    if not ty.is_signed(dtype):
        quotient, remainder = _divided(b, dtype, x, b.select(by_zero, one, y))
        return b.select(by_zero, ones, quotient), b.select(by_zero, x, remainder)
    # nor by -1: of one number there is no such quotient, and no other may wait for that
    special = b.icmp_unsigned("<=", b.add(y, one), one)
    quotient, remainder = _divided(b, dtype, x, b.select(special, one, y))
    instead = b.select(by_zero, ones, b.sub(zero, x))
    return b.select(special, instead, quotient), b.select(by_zero, x, remainder)


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
    # LLVM multiplies by a constant
    if not _is_by_float(dtype, x) or isinstance(y, ir.Constant):
        if signed:
            return b.sdiv(x, y), b.srem(x, y)
        return b.udiv(x, y), b.urem(x, y)
    wide = ir.VectorType(_float(dtype), x.type.count)
    up, down = (b.sitofp, b.fptosi) if signed else (b.uitofp, b.fptoui)
    quotient = down(b.fdiv(up(x, wide), up(y, wide)), x.type)
    return quotient, b.sub(x, b.mul(quotient, y))


def _by_one(
    b: ty.Builder, dtype: np.dtype, x: ty.Value, y: ty.Value
) -> tuple[ty.Value, ty.Value]:
    """All lanes by the same number: times its inverse, which is computed once.

    T. Granlund and P. Montgomery, Division by Invariant Integers using Multiplication,
    figure 4.1; signs are taken off before, and put on again.
    """
    signed, width = ty.is_signed(dtype), x.type.count
    bits = 8 * dtype.itemsize
    everywhere = lambda value: ty.splat(b, value, width)
    by_zero = b.icmp_signed("==", y, like(y, 0))
    divisor = b.select(by_zero, like(y, 1), y)
    size, number, sign = divisor, x, None
    if signed:
        size, number = _size(b, divisor), _size(b, x)
        sign = b.ashr(b.xor(x, everywhere(divisor)), like(x, bits - 1))
    factor, first, rest = _inverse(b, size, bits)
    twice = ir.VectorType(ir.IntType(2 * bits), width)
    product = b.mul(b.zext(number, twice), b.zext(everywhere(factor), twice))
    high = b.trunc(b.lshr(product, like(product, bits)), x.type)
    quotient = b.add(high, b.lshr(b.sub(number, high), everywhere(first)))
    quotient = b.lshr(quotient, everywhere(rest))
    if sign is not None:
        quotient = b.sub(b.xor(quotient, sign), sign)
    remainder = b.sub(x, b.mul(quotient, everywhere(divisor)))
    nothing = everywhere(by_zero)
    return b.select(nothing, like(x, -1), quotient), b.select(nothing, x, remainder)


def _only_number(dtype: np.dtype, y: ir.Constant) -> int | None:
    """The one number of a constant of 64 bits, if LLVM does not shift by it."""
    numbers = y.constant if isinstance(y.constant, list | tuple) else [y]
    first, *others = {n.constant % (1 << 64) for n in numbers}
    number = first - (1 << 64) * (ty.is_signed(dtype) and first >> 63)
    return None if others or abs(number).bit_count() == 1 else number


def _is_by_halves(b: ty.Builder, dtype: np.dtype, x: ty.Value) -> bool:
    """Whether the upper half of a product is that of its parts: of 64 bits, LLVM
    multiplies one number at a time.
    """
    return isinstance(x.type, ir.VectorType) and dtype.itemsize == 8 and is_x86(b)


def _by_known(
    b: ty.Builder, dtype: np.dtype, x: ty.Value, y: int
) -> tuple[ty.Value, ty.Value]:
    """64 bits in all lanes by a number that is known.

    T. Granlund and P. Montgomery, figures 4.1 and 5.2.
    """
    length = (abs(y) - 1).bit_length()  # that 2^length is at least y
    if ty.is_signed(dtype):
        factor = (1 << 63 + length) // abs(y) + 1  # 64 bits, the first of them set
        sign = b.ashr(x, like(x, 63))
        high = b.sub(_upper_half(b, x, factor), b.and_(sign, like(x, factor)))
        quotient = b.sub(b.ashr(high, like(x, length - 1)), sign)
        quotient = b.sub(like(x, 0), quotient) if y < 0 else quotient
    else:
        factor = ((1 << length) - y << 64) // y + 1
        high = _upper_half(b, x, factor)
        quotient = b.add(high, b.lshr(b.sub(x, high), like(x, 1)))
        quotient = b.lshr(quotient, like(x, length - 1))
    return quotient, b.sub(x, b.mul(quotient, like(x, y)))


def _upper_half(b: ty.Builder, x: ty.Value, factor: int) -> ty.Value:
    """The first 64 bits of a product of unsigned numbers, which has 128."""
    half = lambda value: b.and_(value, like(x, HALF))
    upper = lambda value: b.lshr(value, like(x, 32))
    times = lambda part, number: b.mul(part, like(x, number))
    low, high = half(x), upper(x)
    middle = b.add(times(high, factor & HALF), upper(times(low, factor & HALF)))
    other = b.add(times(low, factor >> 32), half(middle))
    return b.add(times(high, factor >> 32), b.add(upper(middle), upper(other)))


def _size(b: ty.Builder, x: ty.Value) -> ty.Value:
    """Without its sign, as an unsigned number."""
    return b.select(b.icmp_signed("<", x, like(x, 0)), b.sub(like(x, 0), x), x)


def _inverse(
    b: ty.Builder, y: ty.Value, bits: int
) -> tuple[ty.Value, ty.Value, ty.Value]:
    """The bits of 2^n / y after the first, and two shifts: m', sh_1 and sh_2."""
    wide = ir.IntType(2 * bits)
    up = lambda value: b.zext(value, wide)
    below = b.sub(y, like(y, 1))
    zeros = leading_zeros(b, below)
    length = b.sub(like(y, bits), zeros)  # that 2^length is at least y
    power = b.shl(ir.Constant(wide, 1), up(length))
    above = b.shl(b.sub(power, up(y)), ir.Constant(wide, bits))
    factor = b.add(b.trunc(b.udiv(above, up(y)), y.type), like(y, 1))
    is_one = b.icmp_signed("==", below, like(y, 0))
    first = b.select(is_one, like(y, 0), like(y, 1))
    return factor, first, b.sub(length, first)


def _is_by_float(dtype: np.dtype, x: ty.Value) -> bool:
    return isinstance(x.type, ir.VectorType) and dtype.itemsize <= 4


def _float(dtype: np.dtype) -> ty.Kind:
    """One with more bits than an integer has."""
    return ir.DoubleType() if dtype.itemsize == 4 else ir.FloatType()
