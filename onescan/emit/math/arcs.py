"""asin, acos, atan and atan2.

One odd polynomial each: atan on [0, 1], with the reciprocal beyond, and asin on
[0, 1/2], with asin x = pi/2 - 2 asin(sqrt((1 - x) / 2)) beyond. Multiples of pi/2 are
added as high + low, the low part to the small term first.
"""

from __future__ import annotations

import math

from onescan.emit.math.coefficients import ASIN, ATAN, HALF_PI_PAIR
from onescan.emit.math.types import Lane, elementary, poly, select


def _bend(t: Lane, coefficients: dict[int, tuple[float, ...]]) -> Lane:
    """What the function adds to t, its first term."""
    z = t * t
    return (t * z) * poly(z, coefficients[t.format.bits])


@elementary
def atan(x: Lane) -> Lane:
    high, low = HALF_PI_PAIR[x.format.bits]
    size = x.abs()
    inverted = size > 1.0
    t = select(inverted, x.like(1.0), size) / select(inverted, size, 1.0)
    bend = _bend(t, ATAN)
    y = select(inverted, (high - t) - (bend - low), t + bend)
    return y.with_sign_of(x)


def _readable(*sizes: Lane) -> list[Lane]:
    """Numbers with the same quotient: a processor may read small ones as zeros."""
    x, y = sizes
    small = (x.bits() | y.bits()) < 1 << x.format.mantissa
    scaled = [(v.bits() | v.format.one).as_float(v) - 1.0 for v in sizes]
    return [select(small, s, v) for s, v in zip(scaled, sizes, strict=True)]


@elementary
def atan2(y: Lane, x: Lane) -> Lane:
    high, low = HALF_PI_PAIR[x.format.bits]
    across, up = _readable(x.abs(), y.abs())
    steep = up > across
    small, large = select(steep, across, up), select(steep, up, across)
    t = small / large
    # 0 / 0 is on the axis, inf / inf on the diagonal.
    t = select(large.equals(0.0), 0.0, t)
    t = select(small.equals(math.inf), 1.0, t)
    bend = _bend(t, ATAN)
    behind = x.bits() < 0
    # The result is (0, 1 or 2) pi/2 plus or minus the arc.
    backwards = steep ^ behind
    t, bend = select(backwards, -t, t), select(backwards, -bend, bend)
    base_high = select(steep, x.like(high), select(behind, x.like(2 * high), 0.0))
    base_low = select(steep, x.like(low), select(behind, x.like(2 * low), 0.0))
    angle = ((base_high + t) + (bend + base_low)).with_sign_of(y)
    return select(x.is_nan() | y.is_nan(), math.nan, angle)


@elementary
def asin(x: Lane) -> Lane:
    high, low = HALF_PI_PAIR[x.format.bits]
    size = x.abs()
    outer = size > 0.5
    t = select(outer, ((1.0 - size) * 0.5).sqrt(), size)
    bend = _bend(t, ASIN)
    twice = t + t
    rest = high - twice
    lost = (high - rest) - twice
    y = select(outer, rest - (bend + bend - (lost + low)), t + bend)
    return y.with_sign_of(x)


@elementary
def acos(x: Lane) -> Lane:
    high, low = HALF_PI_PAIR[x.format.bits]
    outer = x.abs() > 0.5
    t = select(outer, ((1.0 - x.abs()) * 0.5).sqrt(), x)
    y = t + _bend(t, ASIN)
    twice = y + y
    outside = select(x < 0.0, 2 * high - (twice - 2 * low), twice)
    return select(outer, outside, high - (y - low))
