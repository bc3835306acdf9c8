"""pow, with the special cases of C99.

x**y = exp(y log |x|), so an error of the logarithm is magnified by |y log x|, up to
a thousand: the logarithm carries ten more bits than the result. float32 computes in
float64; float64 carries the logarithm as the unevaluated sum of two numbers.
"""

from __future__ import annotations

import math

from llvmlite import ir

from onescan.emit.math.coefficients import ATANH_TAIL, LN2
from onescan.emit.math.exponential import exp_sum
from onescan.emit.math.logarithm import decompose, log_positive
from onescan.emit.math.types import (
    DOUBLE,
    Lane,
    elementary,
    fast_two_sum,
    fma,
    poly,
    select,
    two_product,
)

THIRD = (1 / 3, 1.850371707708594e-17)


def log_pair(x: Lane) -> tuple[Lane, Lane]:
    """log x as high + low, to about 2**-64, for finite float64 x > 0."""
    e, f = decompose(x)
    # s = f / (2 + f), and what it lost to rounding.
    d, d_low = fast_two_sum(x.like(2.0), f)
    inverse = 1.0 / d
    s = f * inverse
    p, p_low = two_product(s, d)
    s_low = (((f - p) - p_low) - s * d_low) * inverse
    # log(1 + f) = 2 s (1 + z (1/3 + z tail(z))), z = s**2
    z, z_low = two_product(s, s)
    z_low = z_low + (s + s) * s_low
    q, q_low = fast_two_sum(x.like(THIRD[0]), z * poly(z, ATANH_TAIL[64]))
    q_low = q_low + THIRD[1]
    w, w_low = two_product(z, q)
    w_low = w_low + (z * q_low + z_low * q)
    g, g_low = fast_two_sum(x.like(1.0), w)
    g_low = g_low + w_low
    half, half_low = two_product(s, g)
    half_low = half_low + (s * g_low + s_low * g)
    ln2_high, ln2_low = LN2[64]
    high, low = fast_two_sum(e * ln2_high, half + half)
    return fast_two_sum(high, low + fma(e, ln2_low, half_low + half_low))


def _is_integer(x: Lane) -> Lane:
    """Whether |x| is one; true for infinity, x must not be negative."""
    big = 2.0**x.format.mantissa
    return (x >= big) | ((x + big) - big).equals(x)


@elementary
def pow(x: Lane, y: Lane) -> Lane:
    size = x.abs()
    exponent = y.abs()
    if x.format is DOUBLE:
        log, log_low = log_pair(size)
        log = _log_edges(size, log)
        product, low = two_product(y, log)
        low = fma(y, log_low, low)
        # An infinite product has no lower part, and a huge one needs none.
        finite = product.abs() < 2000.0
        low = select(finite, low, 0.0)
    else:
        wide = size.to(ir.DoubleType())
        product = y.to(ir.DoubleType()) * _log_edges(wide, log_positive(wide))
        low = None
    product = select(size.equals(1.0) & ~y.is_nan(), 0.0, product)
    result = exp_sum(product, low).to(x.element)
    integer = _is_integer(exponent)
    odd = integer & ~_is_integer(exponent * 0.5)
    negative = x.bits() < 0
    result = select(negative & odd, -result, result)
    undefined = (x < 0.0) & ~integer & (x > -math.inf)
    result = select(undefined, math.nan, result)
    return select(x.equals(1.0) | y.equals(0.0), 1.0, result)


def _log_edges(x: Lane, log: Lane) -> Lane:
    """log with the results for x = 0, infinity and NaN."""
    log = select(x < math.inf, log, x)
    return select(x.equals(0.0), -math.inf, log)
