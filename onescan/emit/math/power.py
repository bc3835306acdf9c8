"""pow, with the special cases of C99.

x**y = exp(y log |x|), so an error of the logarithm is magnified by |y log x|, up to
a thousand: the logarithm carries ten more bits than the result. float32 computes in
float64; float64 carries the logarithm as the unevaluated sum of two numbers.
"""

from __future__ import annotations

import math

from llvmlite import ir

from onescan.emit.math.coefficients import (
    ATANH_TAIL,
    EXP_FOR_SINGLE,
    LN2,
    LOG_FOR_SINGLE,
)
from onescan.emit.math.exponential import exp_sum, power_of_two, reduce_exp
from onescan.emit.math.logarithm import (
    decompose,
    log_edges,
    log_normal,
    normalise,
    normalise_exactly,
)
from onescan.emit.math.scaling import widened
from onescan.emit.math.types import (
    DOUBLE,
    Lane,
    clamp,
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
    return _log_pair(*normalise(x))


def _log_pair(x: Lane, shift: Lane) -> tuple[Lane, Lane]:
    e, f = decompose(x, shift)
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


def _exp_for_single(x: Lane) -> Lane:
    """exp in float64, to some 34 bits; infinite and zero where float32 is."""
    n, r, _ = reduce_exp(clamp(x, -110.0, 100.0))
    y = fma(r * r, poly(r, EXP_FOR_SINGLE[64]), r) + 1.0
    return y * power_of_two(n, x)


def _is_integer(x: Lane) -> Lane:
    """Whether |x| is one; true for infinity, x must not be negative."""
    big = 2.0**x.format.mantissa
    return (x >= big) | ((x + big) - big).equals(x)


def _not_subnormal(y: Lane) -> Lane:
    """An exponent as close to zero as it may be: a processor may read y as zero."""
    bits = y.abs().bits()
    subnormal = (bits < 1 << y.format.mantissa) & (bits > 0)
    return select(subnormal, y.like(y.format.tiny).with_sign_of(y), y)


@elementary
def pow(x: Lane, y: Lane) -> Lane:
    size = x.abs()
    y = _not_subnormal(y)
    if x.format is DOUBLE:
        scaled, shift = normalise_exactly(size)
        log, log_low = _log_pair(scaled, shift)
        log = log_edges(size, scaled, log)
        product, low = two_product(y, log)
        # An infinite product has no lower part, and a huge one needs none.
        low = select(product.abs() < 2000.0, fma(y, log_low, low), 0.0)
    else:
        # As float64 every float32 is a normal number.
        scaled = widened(size)
        log = log_normal(scaled, 0.0, LOG_FOR_SINGLE[64])
        log = log_edges(scaled, scaled, log)
        product, low = y.to(ir.DoubleType()) * log, None
    product = select(size.equals(1.0) & ~y.is_nan(), 0.0, product)
    if low is None:
        result = _exp_for_single(product).to(x.element)
    else:
        result = exp_sum(product, low)

    exponent = y.abs()
    integer = _is_integer(exponent)
    odd = integer & ~_is_integer(exponent * 0.5)
    negative = x.bits() < 0
    result = select(negative & odd, -result, result)
    nonzero = scaled > 0.0
    root_of_negative = negative & ~integer & nonzero & (size < math.inf)
    result = select(root_of_negative, math.nan, result)
    return select(x.equals(1.0) | y.equals(0.0), 1.0, result)


def by_halves(b: ir.IRBuilder, value: ir.Value, halves: int) -> ir.Value:
    """A float32 to the power of some halves, which are not 0: by products and a root.

    In float64, where no step overflows, and all roundings together are too small to be
    seen; a quarter of the operations of `pow`, and no chain of a logarithm.
    """
    x = Lane(b, value)
    wide = widened(x)
    factor = wide.abs() if halves % 2 else wide
    factors = [factor] * (abs(halves) // 2)
    result = factor.sqrt() if halves % 2 else factors.pop()
    for factor in factors:
        result = result * factor
    if halves < 0:
        result = wide.like(1.0) / result
    result = result.to(x.element)
    if halves % 2:
        result = select((x < 0.0) & (x > -math.inf), math.nan, result)
    return result.ir
