"""The last step of many functions: times a power of two, or divided by something."""

from __future__ import annotations

from llvmlite import ir

from onescan.emit.math import avx512, nvidia
from onescan.emit.math.types import SINGLE, Lane, fma, select


def scale(y: Lane, n: Lane, subnormal: Lane, halved: bool = False) -> Lane:
    """y * 2**n, or half of it, rounded once; n is the bits of n + `round_bias`.

    `subnormal` marks where the result may be that.
    """
    if avx512.usable(y):
        power = n.as_float(y) - y.format.round_bias
        return avx512.scaled(y, power - 1.0 if halved else power)
    mantissa, bias = y.format.mantissa, y.format.bias
    offset = select(subnormal, n.like((bias + 64) << mantissa), (bias - 2) << mantissa)
    y = y * ((n << mantissa) + offset).as_float(y)
    last = 0.5 if halved else 1.0
    return y * select(subnormal, y.like(last * 2.0**-64), last * 4.0)


def widened(x: Lane) -> Lane:
    """A float32 as float64, exactly: a processor may read subnormals as zero."""
    size = x.abs()
    bits = size.bits()
    subnormal = bits < 1 << x.format.mantissa
    scaled = select(subnormal, (bits | x.format.one).as_float(x) - 1.0, size)
    wide = scaled.to(ir.DoubleType())
    wide = wide * select(subnormal, wide.like(x.format.tiny), 1.0)
    return wide.with_sign_of(x.to(ir.DoubleType()))


def quotient(x: Lane | float, y: Lane) -> Lane:
    """x / y, for a y well inside the range of normal numbers.

    A division keeps a processor busy for as long as a dozen multiplications.
    Newton's step makes 1 / y good to the last bits; what x / y then lacks is added.
    """
    x, inverse = y.like(x), inverse_of(y)
    if inverse is None:
        return x / y
    result = x * inverse
    return fma(inverse, fma(-y, result, x), result)


def inverse_of(y: Lane) -> Lane | None:
    """1 / y but for its last bits, where an instruction gives about that."""
    if nvidia.usable(y):
        return nvidia.about_one_over(y)
    if y.format == SINGLE and avx512.usable(y):
        about = avx512.about_one_over(y)
        return fma(about, fma(-y, about, 1.0), about)
    return None
