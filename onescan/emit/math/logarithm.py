"""log, log2, log1p, and the logarithm of a sum that the inverse hyperbolics need.

x = 2**e m with m in [sqrt(1/2), sqrt(2)), and log x = e ln 2 + log(1 + f), f = m - 1
exact. float32 uses one polynomial in f, float64 the odd series of atanh in f / (2 + f):
its division is cheaper than the twenty terms the polynomial would take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onescan.emit.math.coefficients import LN2, LOG
from onescan.emit.math.types import (
    DOUBLE,
    Lane,
    elementary,
    fma,
    poly,
    select,
)

SQRT_HALF_BITS = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}


def split_exponent(x: Lane) -> tuple[Lane, Lane]:
    """e + bias as an integer and m in [sqrt(1/2), sqrt(2)), for a normal x > 0."""
    mantissa, one = x.format.mantissa, x.format.one
    bits = x.bits()
    biased = (bits - (SQRT_HALF_BITS[x.format.bits] - one)) >> mantissa
    return biased, (bits - (biased << mantissa) + one).as_float(x)


def small_to_float(n: Lane, like: Lane, subtract: int) -> Lane:
    """n - subtract as a float, for an integer 0 <= n < 2**23."""
    base = 2.0**like.format.mantissa
    return (n | like.like(base).bits()).as_float(like) - (base + subtract)


def log1p_tail(f: Lane, series: Sequence[float] = LOG[64]) -> Lane:
    """log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2)); the series is for float64."""
    half_square = (f * f) * 0.5
    if f.format is DOUBLE:
        s = f / (f + 2.0)
        z = s * s
        return s * fma(z, poly(z, series), half_square) - half_square
    return fma(f * (f * f), poly(f, LOG[32]), -half_square)


def normalise(x: Lane) -> tuple[Lane, Lane]:
    """x, scaled to a normal number if it is subnormal, and the exponent to add back.

    Zero stays zero, and so does a subnormal number on a processor that is told to
    read them as zero: test the scaled number, not x, which LLVM may test by its bits.
    """
    subnormal = x < x.format.tiny
    shift = x.format.mantissa + 1
    scaled = select(subnormal, x * 2.0**shift, x)
    return scaled, select(subnormal, x.like(-shift), 0.0)


def normalise_exactly(x: Lane) -> tuple[Lane, Lane]:
    """The same for every x >= 0, also on a processor that reads subnormals as zero."""
    bits = x.bits()
    subnormal = bits < 1 << x.format.mantissa
    scaled = select(subnormal, (bits | x.format.one).as_float(x) - 1.0, x)
    return scaled, select(subnormal, x.like(float(1 - x.format.bias)), 0.0)


def decompose(scaled: Lane, shift: Lane | float) -> tuple[Lane, Lane]:
    """e as a float, and f = m - 1, for a normalised number."""
    biased, m = split_exponent(scaled)
    return small_to_float(biased, scaled, scaled.format.bias) + shift, m - 1.0


def log_normal(
    scaled: Lane, shift: Lane | float, series: Sequence[float] = LOG[64]
) -> Lane:
    """log of a finite x > 0, given normalised."""
    high, low = LN2[scaled.format.bits]
    e, f = decompose(scaled, shift)
    return fma(e, high, f + fma(e, low, log1p_tail(f, series)))


def log_edges(x: Lane, scaled: Lane, y: Lane) -> Lane:
    """y = log(x) with the results for zero, negative, infinite and NaN x."""
    y = select(x < math.inf, y, x)
    y = select(x < 0.0, math.nan, y)
    return select(scaled.equals(0.0), -math.inf, y)


def log_positive(x: Lane) -> Lane:
    """log of a finite x > 0."""
    return log_normal(*normalise(x))


@elementary
def log(x: Lane) -> Lane:
    scaled, shift = normalise(x)
    return log_edges(x, scaled, log_normal(scaled, shift))


@elementary
def log2(x: Lane) -> Lane:
    scaled, shift = normalise(x)
    e, f = decompose(scaled, shift)
    y = f + log1p_tail(f)
    return log_edges(x, scaled, fma(y, 1 / math.log(2), e))


def log1p_sum(x: Lane, low: Lane | None = None, doublings: Lane | None = None) -> Lane:
    """log(1 + x + low) + doublings * ln 2, for finite x > -1 and a tiny low."""
    mantissa, bias = x.format.mantissa, x.format.bias
    ln2_high, ln2_low = LN2[x.format.bits]
    u = x + 1.0
    v = u - 1.0
    lost = (1.0 - (u - v)) + (x - v)
    if low is not None:
        lost = lost + low
    biased, m = split_exponent(u)
    unscale = ((2 * bias - biased) << mantissa).as_float(x)
    lost = select(u < 2.0 ** (mantissa + 6), lost * unscale, 0.0)
    # Where u needs no scaling, x itself is f, without u's rounding.
    near = biased.equals(bias)
    f = select(near, x, m - 1.0)
    lost = select(near, x.like(0.0) if low is None else low, lost)
    e = small_to_float(biased, x, bias)
    if doublings is not None:
        e = e + doublings
    correction = lost * fma(f, f - 1.0, 1.0)
    return fma(e, ln2_high, f + (fma(e, ln2_low, log1p_tail(f)) + correction))


@elementary
def log1p(x: Lane) -> Lane:
    y = log1p_sum(x)
    y = select(x < math.inf, y, x)
    y = select(x < -1.0, math.nan, y)
    y = select(x.equals(-1.0), -math.inf, y)
    # Keeps the sign of zero, and subnormal numbers as they are.
    return select(x.abs() < x.format.tiny, x, y)
