"""sqrt, rsqrt, cbrt and nextafter."""

from __future__ import annotations

import math

from onescan.emit.math.coefficients import INVERSE_CBRT
from onescan.emit.math.logarithm import decompose, normalise
from onescan.emit.math.types import (
    DOUBLE,
    Lane,
    elementary,
    fma,
    poly,
    select,
    two_product,
)


@elementary
def sqrt(x: Lane) -> Lane:
    return x.sqrt()


@elementary
def rsqrt(x: Lane) -> Lane:
    return 1.0 / x.sqrt()


@elementary
def cbrt(x: Lane) -> Lane:
    """Newton's iteration for m ** (-1/3), then one exact residual for the root.

    |x| = 2**(3 q) m with m in [2**(-3/2), 2**(3/2)).
    """
    size = x.abs()
    scaled, shift = normalise(size)
    e, f = decompose(scaled, shift)
    bias = x.format.round_bias
    shifted = fma(e, 1 / 3, bias)
    third = shifted - bias
    rest = e - third * 3.0
    below, above = rest < 0.0, rest > 0.0
    m = f + 1.0
    y = poly(m, INVERSE_CBRT[0])
    y = y * select(
        below, x.like(2 ** (1 / 3)), select(above, x.like(2 ** (-1 / 3)), 1.0)
    )
    m = m * select(below, x.like(0.5), select(above, x.like(2.0), 1.0))
    for _ in range(2 if x.format is DOUBLE else 1):
        y = fma(y * (1 / 3), 1.0 - m * (y * (y * y)), y)
    root = m * (y * y)
    square, square_low = two_product(root, root)
    cube, cube_low = two_product(square, root)
    residual = (cube - m) + (cube_low + square_low * root)
    root = fma(residual * (y * y), -1 / 3, root)
    mantissa = x.format.mantissa
    scale = ((shifted.bits() << mantissa) + x.format.one).as_float(x)
    usual = (size < math.inf) & (scaled > 0.0)
    return select(usual, (root * scale).with_sign_of(x), x)


@elementary
def nextafter(x: Lane, y: Lane) -> Lane:
    """In integers, so that it moves between subnormal numbers everywhere."""
    sign = 1 << (x.format.bits - 1)
    a, b = x.bits(), y.bits()
    a_size, b_size = a & (sign - 1), b & (sign - 1)
    different_sign = (a ^ b) < 0
    shrink = different_sign | (a_size > b_size)
    step = select(shrink, a.like(-1), 1)
    moved = select(a_size.equals(0), (b & -sign) | 1, a + step)
    equal = a.equals(b) | (a_size | b_size).equals(0)
    result = select(equal, b, moved).as_float(x)
    return select(x.is_nan() | y.is_nan(), math.nan, result)
