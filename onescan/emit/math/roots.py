"""sqrt, rsqrt and cbrt."""

from __future__ import annotations

import math

from onescan.emit.math import avx512
from onescan.emit.math.coefficients import INVERSE_CBRT
from onescan.emit.math.logarithm import decompose, normalise
from onescan.emit.math.types import (
    DOUBLE,
    SINGLE,
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
    """A root and a division, or Newton's step from what an instruction gives."""
    if x.format is not SINGLE or not avx512.usable(x):
        return 1.0 / x.sqrt()
    about = avx512.about_one_over_root(x)
    wrong = fma(-x * about, about, 1.0)
    # of zero, infinity and NaN the first is right, and the second is none
    return select(wrong.is_nan(), about, fma(about * 0.5, wrong, about))


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
    # What is left is zero, infinite or NaN, or read as zero by the processor.
    return select(usual, (root * scale).with_sign_of(x), x + x)
