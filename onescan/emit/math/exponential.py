"""exp, exp2, expm1 and logistic.

x = n ln 2 + r with |r| <= ln 2 / 2 (n ln 2 subtracted in two pieces, the first with so
few bits that its product with n is exact), a polynomial for exp(r), and 2**n applied
in two steps, so that overflow gives infinity and a subnormal result is rounded once.
"""

from __future__ import annotations

import math

from onescan.emit.math.coefficients import EXP, EXP2, EXPM1, LN2
from onescan.emit.math.scaling import quotient, scale
from onescan.emit.math.types import Lane, clamp, elementary, fma, poly, select

# Beyond these exp(x) is zero, or even half of it is infinity; below the middle one it
# may be subnormal, even as a factor of something else.
EXP_RANGE = {32: (-104.0, -80.0, 89.42), 64: (-746.0, -700.0, 710.48)}
EXP2_RANGE = {32: (-151.0, -123.0, 129.0), 64: (-1076.0, -1019.0, 1025.0)}
# Where logistic has reached 0, and 1.
LOGISTIC_RANGE = {32: (-105.0, 30.0), 64: (-747.0, 50.0)}
# Where expm1 has reached -1, and infinity.
EXPM1_RANGE = {32: (-30.0, 89.0), 64: (-60.0, 710.0)}


def reduce_exp(x: Lane, low: Lane | None = None) -> tuple[Lane, Lane, Lane]:
    """The bits of n + `round_bias`, r and what r lost: x + low = n ln 2 + r + lost."""
    bias = x.format.round_bias
    ln2_high, ln2_low = LN2[x.format.bits]
    shifted = fma(x, 1 / math.log(2), bias)
    n = shifted - bias
    exact = fma(n, -ln2_high, x)
    rest = n * -ln2_low if low is None else fma(n, -ln2_low, low)
    r = fma(n, -ln2_low, exact) if low is None else exact + rest
    return shifted.bits(), r, (exact - r) + rest


def power_of_two(n: Lane, like: Lane, add: int = 0) -> Lane:
    """2 ** (n + add) for the low bits n of an integer, result a normal number."""
    mantissa, bias = like.format.mantissa, like.format.bias
    return ((n << mantissa) + ((bias + add) << mantissa)).as_float(like)


def exp_sum(x: Lane, low: Lane | None = None, halved: bool = False) -> Lane:
    """exp(x + low) for a tiny `low`; half of it, which overflows later, if `halved`."""
    lowest, subnormal, highest = EXP_RANGE[x.format.bits]
    x = clamp(x, lowest, highest)
    n, r, _ = reduce_exp(x, low)
    y = fma(r * r, poly(r, EXP[x.format.bits]), r) + 1.0
    return scale(y, n, x < subnormal, halved)


@elementary
def exp(x: Lane) -> Lane:
    return exp_sum(x)


@elementary
def exp2(x: Lane) -> Lane:
    lowest, subnormal, highest = EXP2_RANGE[x.format.bits]
    x = clamp(x, lowest, highest)
    shifted = x + x.format.round_bias
    r = x - (shifted - x.format.round_bias)
    y = fma(r, poly(r, EXP2[x.format.bits]), 1.0)
    return scale(y, shifted.bits(), x < subnormal)


@elementary
def expm1(x: Lane) -> Lane:
    """2**n (1 + r + q) - 1, summed so that the rounding of 2**n (1 + r) is kept."""
    bits = x.format.bits
    clamped = clamp(x, *EXPM1_RANGE[bits])
    n, r, lost = reduce_exp(clamped)
    q = fma(r * r, poly(r, EXPM1[bits]), lost)
    # Half the result, since 2**n itself may overflow.
    half = power_of_two(n, x, -1)
    whole = half - 0.5
    scaled = half * r
    total = whole + scaled
    y = total + fma(half, q, (whole - total) + scaled)
    tiny = x.abs() < 2.0 ** -(x.format.mantissa + 2)
    return select(tiny, x, y + y)


def exp_plus_one(x: Lane, one: Lane | float = 1.0, add: int | Lane = 0) -> Lane:
    """exp(x) * 2**add + one, rounded once, for a sum that is a normal number."""
    n, r, _ = reduce_exp(x)
    y = fma(r * r, poly(r, EXP[x.format.bits]), r)
    mantissa = x.format.mantissa
    power = ((n << mantissa) + x.format.one + add).as_float(x)
    sum = power + one
    lost = one - (sum - power)
    return fma(power, y, lost) + sum


@elementary
def logistic(x: Lane) -> Lane:
    """1 / (1 + exp(-x)), scaled where exp(-x) would overflow."""
    smallest, one = LOGISTIC_RANGE[x.format.bits]
    x = clamp(x, smallest, one)
    huge = x < -80.0
    bits = x.bits()
    add = select(huge, bits.like(-64 << x.format.mantissa), 0)
    sum = exp_plus_one(-x, select(huge, x.like(0.0), 1.0), add)
    return quotient(select(huge, x.like(2.0**-64), 1.0), sum)
