"""lgamma and digamma.

float32 computes in float64. lgamma: a polynomial around 2, reached from elsewhere below
6.5 by multiplying up or down, and Stirling's series beyond; the logarithms of float64
are pairs of numbers, so that what they cancel against is all that counts. digamma: a
polynomial around its positive root, one step of the recurrence, and the asymptotic
series from 3. Left of zero both reflect, and near their roots there the error is a few
units in the last place of the terms that cancel, not of the result.
"""

from __future__ import annotations

import math

from llvmlite import ir

from onescan.emit.math.coefficients import (
    DIGAMMA,
    DIGAMMA_FAR,
    DIGAMMA_FIRST_LOW,
    DIGAMMA_ROOT,
    LGAMMA,
    LGAMMA_FIRST_LOW,
    STIRLING,
)
from onescan.emit.math.logarithm import log_positive
from onescan.emit.math.power import log_pair
from onescan.emit.math.scaling import widened
from onescan.emit.math.trigonometric import sin_cos, tan_pair
from onescan.emit.math.types import (
    DOUBLE,
    Lane,
    elementary,
    fast_two_sum,
    fma,
    poly,
    select,
    series,
    two_product,
    two_sum,
)

PI = (math.pi, 1.2246467991473532e-16)
LOG_PI = (1.1447298858494002, 1.0265951162707826e-17)
HALF_LOG_TWO_PI_LESS_HALF = 0.41893853320467274178
STIRLING_START = 6.5


def _log(x: Lane, bits: int) -> tuple[Lane, Lane]:
    """log x as a pair; the second is zero where float32 does not need it."""
    if bits == 64:
        return log_pair(x)
    return log_positive(x), x.like(0.0)


@elementary
def lgamma(x: Lane) -> Lane:
    bits = x.format.bits
    wide = x if bits == 64 else widened(x)
    result = _lgamma(wide, bits).to(x.element)
    return select(x.abs().equals(math.inf), math.inf, result)


def _lgamma(x: Lane, bits: int) -> Lane:
    reflected = x < -0.5
    size = select(reflected, -x, x)
    positive = _lgamma_right(size, bits)
    # lgamma(x) = log(pi / |x sin(pi x)|) - lgamma(-x)
    to_integer = _distance(size)
    sine = _sin_pi(to_integer)
    log, log_low = _log((size * sine).abs(), bits)
    mirrored = (LOG_PI[0] - log) - positive + (LOG_PI[1] - log_low)
    mirrored = select(to_integer.equals(0.0), math.inf, mirrored)
    return select(reflected, mirrored, positive)


def _lgamma_right(x: Lane, bits: int) -> Lane:
    """lgamma for x >= -1/2."""
    # x = 2 + t + steps, and the product of so many factors.
    t = x - 2.0
    product = x.like(1.0)
    for step in range(1, 5):
        above = x > step + 1.5
        t = select(above, x - float(step + 2), t)
        product = select(above, product * (x - float(step)), product)
    below, zero = x < 1.5, x < 0.5
    t = select(zero, x, select(below, x - 1.0, t))
    square, square_low = two_product(x, x)
    sum, sum_low = two_sum(x, square)
    product = select(zero, sum, select(below, x, product)).abs()

    far = x > STIRLING_START
    log, log_low = _log(select(far, x, product), bits)
    log_low = log_low + select(zero, (sum_low + square_low) / sum, 0.0)
    near, near_low = _first_exact(t, LGAMMA[bits], LGAMMA_FIRST_LOW)
    near, lost = two_product(t, near)
    near_low = fma(t, near_low, lost)
    sign = select(below, x.like(-1.0), 1.0)
    total, lost = two_sum(log * sign, near)
    total = total + (lost + fma(log_low, sign, near_low))
    total = select(product.equals(0.0), math.inf, total)
    return select(far, _stirling(x, log, log_low, bits), total)


def _first_exact(x: Lane, coefficients: tuple[float, ...], low: float):
    """A polynomial as a pair, for a first coefficient that ends in `low`."""
    first, *others = coefficients
    y, lost = fast_two_sum(x.like(first), x * series(x, others))
    return y, lost + low


def _stirling(x: Lane, log: Lane, log_low: Lane, bits: int) -> Lane:
    """(x - 1/2) (log x - 1) + log(2 pi) / 2 - 1/2 + STIRLING(1 / x**2) / x."""
    inverse = 1.0 / x
    rest = inverse * poly(inverse * inverse, STIRLING[bits]) + HALF_LOG_TWO_PI_LESS_HALF
    factor = x - 0.5
    if bits == 32:
        return fma(factor, log - 1.0, rest)
    high, low = fast_two_sum(log, x.like(-1.0))
    low = low + log_low
    product, product_low = two_product(factor, high)
    tail = product_low + fma(factor, low, rest)
    return select(product < math.inf, product + tail, product)


def _distance(x: Lane) -> Lane:
    """x less the nearest integer, exactly, for x >= 0."""
    big = 2.0**DOUBLE.mantissa
    return select(x < big, x - ((x + big) - big), 0.0)


def _pi_times(r: Lane) -> tuple[Lane, Lane]:
    product, low = two_product(r, r.like(PI[0]))
    return fast_two_sum(product, fma(r, PI[1], low))


def _sin_pi(r: Lane) -> Lane:
    """sin(pi r) for |r| <= 1/2, up to its sign."""
    size = r.abs()
    swapped = size > 0.25
    angle, low = _pi_times(select(swapped, 0.5 - size, size))
    sine, cosine = sin_cos(angle)
    return select(swapped, cosine - low * sine, sine + low * cosine)


@elementary
def digamma(x: Lane) -> Lane:
    bits = x.format.bits
    return _digamma(x.to(ir.DoubleType()), bits).to(x.element)


def _digamma(x: Lane, bits: int) -> Lane:
    reflected = x < 0.0
    positive = _digamma_right(select(reflected, 1.0 - x, x), bits)
    # digamma(x) = digamma(1 - x) - pi / tan(pi x)
    to_integer = _distance(x.abs())
    size = to_integer.abs()
    swapped = size > 0.25
    tangent = tan_pair(*_pi_times(select(swapped, 0.5 - size, size)))
    # Of almost zero, whose product with pi has parts that are subnormal, it is -1 / x.
    tiny = size < 2.0**-60
    tangent = select(tiny, size, tangent)
    cotangent = select(swapped, tangent, 1.0) / select(swapped, x.like(1.0), tangent)
    # x is negative, so the signs of x and of its distance multiply to minus.
    cotangent = select(to_integer < 0.0, cotangent, -cotangent)
    mirrored = positive - cotangent * select(tiny, x.like(1.0), PI[0])
    mirrored = select(size.equals(0.0), math.nan, mirrored)
    result = select(reflected, mirrored, positive)
    result = select(x.equals(0.0), -math.inf, result)
    return select(x.equals(math.inf), x, result)


def _digamma_right(x: Lane, bits: int) -> Lane:
    """digamma for x > 0."""
    low, high, far = x < 1.0, x > 2.0, x > 3.0
    root, root_low = DIGAMMA_ROOT[64]
    # x shifted into [1, 2] by a step of the recurrence; small x is shifted inexactly.
    below, above = x - 1.0, x + 1.0
    shifted = select(high, below, select(low, above, x))
    lost = select(low, x - (above - 1.0), 0.0)
    distance, distance_low = two_sum(shifted - root, lost - root_low)
    slope, slope_low = _first_exact(shifted - 1.5, DIGAMMA[bits], DIGAMMA_FIRST_LOW)
    near, lost = two_product(distance, slope)
    near_low = lost + fma(distance, slope_low, distance_low * slope)
    # The step, and what its division lost.
    by = select(high, below, -x)
    step = 1.0 / by
    product, lost = two_product(step, by)
    step_low = ((1.0 - product) - lost) * step
    step = select(low | high, step, 0.0)
    # A step from almost zero is the whole result, and its error may be subnormal.
    step_low = select((low & (x > 2.0**-30)) | high, step_low, 0.0)
    near, lost = two_sum(near, step)
    near = near + (lost + (near_low + step_low))
    near = select(step.abs() < math.inf, near, step)

    inverse = 1.0 / x
    z = inverse * inverse
    log, log_low = _log(x, bits)
    rest = fma(z, poly(z, DIGAMMA_FAR[bits]), inverse * 0.5)
    return select(far, log - (rest - log_low), near)
