"""Conversions between float16 or bfloat16 bit patterns and float32 or float64.

In integers, because LLVM may turn its own conversions into library calls that a JIT
cannot resolve. Narrowing rounds once, to nearest even: adding just under half a unit
(and one more for an odd last bit) before dropping bits does it for normal numbers, and
the addition of a power of two whose last place is the target's smallest number does it
for subnormal ones. NaN stays NaN and becomes quiet. GPUs and most processors have
instructions for float16, which do the same.
"""

from __future__ import annotations

from llvmlite import ir

from onescan.emit.math.features import BF16, F16C, GPU, has
from onescan.emit.math.types import (
    SINGLE,
    Format,
    Lane,
    elementary,
    select,
    with_element,
)

FLOAT16 = Format(16, 10, 15)
BFLOAT16 = Format(16, 7, 127)


class BFloat(ir.Type):
    """LLVM's `bfloat`, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


def _infinity(format: Format) -> int:
    return (2 * format.bias + 1) << format.mantissa


def _quiet(format: Format) -> int:
    return 1 << (format.mantissa - 1)


def _narrow(x: Lane, target: Format) -> Lane:
    source = x.format
    bits = x.bits()
    sign = (bits >> (source.bits - 16)) & 0x8000
    size = bits & ((1 << (source.bits - 1)) - 1)
    shift = source.mantissa - target.mantissa
    odd = (size >> shift) & 1
    rebias = (source.bias - target.bias) << source.mantissa
    result = (size + odd + ((1 << (shift - 1)) - 1 - rebias)) >> shift
    if rebias:
        last_place = 2.0 ** (1 - target.bias - target.mantissa)
        carrier = x.like(last_place * 2.0**source.mantissa)
        subnormal = (x.abs() + carrier).bits() - carrier.bits()
        result = select(size < rebias + (1 << source.mantissa), subnormal, result)
    overflow = (source.bias + target.bias + 1) << source.mantissa
    infinity = _infinity(target)
    result = select(size >= overflow, infinity, result)
    result = select(size > _infinity(source), infinity | _quiet(target), result)
    half = with_element(x.type, ir.IntType(16))
    return Lane(x.b, x.b.trunc((result | sign).ir, half))


def _zero_extend(x: Lane) -> tuple[Lane, Lane]:
    """The bits in 32-bit lanes, and a float32 lane to take the type from."""
    wide = Lane(x.b, x.b.zext(x.ir, with_element(x.type, ir.IntType(32))))
    single = with_element(x.type, ir.FloatType())
    return wide, Lane(x.b, ir.Constant(single, ir.Undefined))


@elementary
def float16_to_float32(x: Lane) -> Lane:
    if has(x.b, GPU) or has(x.b, F16C):
        half = x.b.bitcast(x.ir, with_element(x.type, ir.HalfType()))
        return Lane(x.b, x.b.fpext(half, with_element(x.type, ir.FloatType())))
    bits, single = _zero_extend(x)
    shift = single.format.mantissa - FLOAT16.mantissa
    rebias = (single.format.bias - FLOAT16.bias) << single.format.mantissa
    size = bits & 0x7FFF
    wide = (size << shift) + rebias
    # A subnormal number, read as a normal one of the next exponent, less that power.
    smallest = single.like(FLOAT16.tiny)
    subnormal = ((size << shift) + smallest.bits()).as_float(single) - smallest
    wide = select(size < 1 << FLOAT16.mantissa, subnormal.bits(), wide)
    infinity = _infinity(FLOAT16)
    wide = select(size >= infinity, wide + rebias, wide)
    wide = select(size > infinity, wide | _quiet(single.format), wide)
    return (wide | ((bits & 0x8000) << 16)).as_float(single)


@elementary
def bfloat16_to_float32(x: Lane) -> Lane:
    bits, single = _zero_extend(x)
    return (bits << 16).as_float(single)


@elementary
def to_float16(x: Lane) -> Lane:
    """The float16 bits (i16) nearest to a float32 or float64."""
    if has(x.b, GPU) and x.format == SINGLE:
        return _by_instruction(x)
    if has(x.b, F16C) and x.format == SINGLE:
        half = x.b.fptrunc(x.ir, with_element(x.type, ir.HalfType()))
        return Lane(x.b, x.b.bitcast(half, with_element(x.type, ir.IntType(16))))
    return _narrow(x, FLOAT16)


def _by_instruction(x: Lane) -> Lane:
    """By an intrinsic, not by LLVM's `fptrunc`: that it would merge with what comes
    before and after, until a sum of a product is one operation, rounded once.
    """
    name, module = "llvm.nvvm.f2h.rn", x.b.module
    kind = ir.FunctionType(ir.IntType(16), [ir.FloatType()])
    function = module.globals.get(name) or ir.Function(module, kind, name)
    return Lane(x.b, x.b.call(function, [x.ir]))


@elementary
def to_bfloat16(x: Lane) -> Lane:
    """The bfloat16 bits (i16) nearest to a float32 or float64."""
    if has(x.b, BF16) and x.format == SINGLE:
        half = x.b.fptrunc(x.ir, with_element(x.type, BFloat()))
        return Lane(x.b, x.b.bitcast(half, with_element(x.type, ir.IntType(16))))
    return _rounded(x) if x.format == SINGLE else _narrow(x, BFLOAT16)


@elementary
def upper_half(x: Lane) -> Lane:
    """The bits of a float32 that is a bfloat16."""
    return Lane(
        x.b, x.b.trunc((x.bits() >> 16).ir, with_element(x.type, ir.IntType(16)))
    )


def _rounded(x: Lane) -> Lane:
    """A bfloat16 is half of a float32: rounding carries into the exponent by itself.

    What was a bfloat16 before keeps all its bits, also those of a NaN.
    """
    bits = x.bits()
    rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
    nan = ((bits >> 16) & 0x8000) | _infinity(BFLOAT16) | _quiet(BFLOAT16)
    longer = Lane(x.b, x.b.icmp_unsigned("!=", (bits & 0xFFFF).ir, bits.like(0).ir))
    result = select(x.is_nan() & longer, nan, rounded)
    return Lane(x.b, x.b.trunc(result.ir, with_element(x.type, ir.IntType(16))))


float32_to_float16 = float64_to_float16 = to_float16
float32_to_bfloat16 = float64_to_bfloat16 = to_bfloat16
