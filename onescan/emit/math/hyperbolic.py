"""tanh, sinh, cosh and their inverses.

The inverses are logarithms of 1 + w for a w built without cancellation; the last
addition keeps its rounding error, which the logarithm takes as a second argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onescan.emit.math import nvidia
from onescan.emit.math.coefficients import EXPM1, SINH, TANH
from onescan.emit.math.exponential import exp_sum, power_of_two
from onescan.emit.math.features import GPU, has
from onescan.emit.math.logarithm import log1p_sum
from onescan.emit.math.scaling import inverse_of
from onescan.emit.math.types import (
    Lane,
    elementary,
    fast_two_sum,
    fma,
    one_way,
    poly,
    select,
    two_sum,
)

# Where tanh is 1 to the last bit.
TANH_ONE = {32: 10.0, 64: 20.0}
TANH_SMALL = 0.625
# Below which tanh is its argument to the last bit.
TANH_SELF = {32: 2.0**-12, 64: 2.0**-27}
# Beyond this, x**2 + 1 is x**2 for the inverse functions, and might overflow.
LARGE = {32: 2.0**30, 64: 2.0**60}


@elementary
def tanh(x: Lane) -> Lane:
    """A tiny scalar, as a state that fades is for most of its steps, goes past."""
    if nvidia.usable(x):
        return _tanh_of_gpu(x)
    if x.is_vector or has(x.b, GPU):
        return _tanh(x)
    tiny = x.abs() < TANH_SELF[x.format.bits]
    return one_way(tiny, lambda: x, lambda: _tanh(x))


def _tanh(x: Lane) -> Lane:
    """e / (e + 1), where e is half of exp(2 |x|) - 1, with the sign of x.

    For |x| = n ln 2 / 2 + r that is 2**n (r + r**2 p) + (2**n - 1) / 2, which is as
    exact near zero as elsewhere.
    """
    bits, bias = x.format.bits, x.format.round_bias
    size, one = x.abs(), x.like(TANH_ONE[bits])
    size = select(one < size, one, size)
    # what ln 2 lacks enters the result less and less, the larger n is
    shifted = fma(size, 2 / math.log(2), bias)
    r = fma(shifted - bias, -math.log(2) / 2, size)
    half = fma(r * r, poly(r, _doubled(EXPM1[bits])), r)
    power = power_of_two(shifted.bits(), x)
    e = fma(power, half, fma(power, 0.5, -0.5))
    tiny = size < TANH_SELF[bits]
    return select(tiny, x, _over_one_more(e).with_sign_of(x))


def _over_one_more(e: Lane) -> Lane:
    """e / (e + 1), corrected by what that leaves of e: e + 1 itself is rounded."""
    more = e + 1.0
    inverse = inverse_of(more)
    if inverse is None:
        inverse = 1.0 / more
    result = e * inverse
    return fma(inverse, fma(-e, result, e - result), result)


def _doubled(coefficients: Sequence[float]) -> list[float]:
    """Of half of p(2 r) times 4, for those of p."""
    return [2.0 ** (k + 1) * c for k, c in enumerate(coefficients)]


def _tanh_of_gpu(x: Lane) -> Lane:
    """An odd polynomial near zero, 1 - 2 / (exp(2 |x|) + 1) elsewhere.

    The quotient is at most half of the result, and what exp is off by a third of
    that.  So a GPU's own approximations will do, which know infinity and zero too.
    """
    size = x.abs()
    z = size * size
    small = fma(size * z, poly(z, TANH[x.format.bits]), size)
    sum = nvidia.about_two_to(size * (2 / math.log(2))) + 1.0
    large = fma(nvidia.about_one_over(sum), -2.0, 1.0)
    return select(size < TANH_SMALL, small, large).with_sign_of(x)


@elementary
def sinh(x: Lane) -> Lane:
    size = x.abs()
    half = exp_sum(size, halved=True)
    large = half - 0.25 / half
    z = size * size
    small = fma(size * z, poly(z, SINH[x.format.bits]), size)
    return select(size < 1.0, small, large).with_sign_of(x)


@elementary
def cosh(x: Lane) -> Lane:
    half = exp_sum(x.abs(), halved=True)
    return half + 0.25 / half


@elementary
def asinh(x: Lane) -> Lane:
    """w = x + x**2 / (1 + sqrt(1 + x**2))."""
    size = x.abs()
    large = size > LARGE[x.format.bits]
    square = size * size
    rest = square / ((square + 1.0).sqrt() + 1.0)
    w, low = fast_two_sum(size, rest)
    y = _log1p_or_log2x(size, w, low, large)
    return select(size < x.format.tiny, size, y).with_sign_of(x)


@elementary
def acosh(x: Lane) -> Lane:
    """w = t + sqrt(2 t + t**2) with t = x - 1."""
    large = x > LARGE[x.format.bits]
    t = x - 1.0
    root = fma(t, t, t + t).sqrt()
    w, low = two_sum(root, t)
    return select(x >= 1.0, _log1p_or_log2x(x, w, low, large), math.nan)


@elementary
def atanh(x: Lane) -> Lane:
    """Half the logarithm of 1 + w, w = 2 x + 2 x**2 / (1 - x)."""
    size = x.abs()
    twice = size + size
    w, low = two_sum(twice, twice * size / (1.0 - size))
    y = log1p_sum(w, low) * 0.5
    y = select(size < x.format.tiny, size, y)
    y = select(size.equals(1.0), math.inf, y)
    return select(size <= 1.0, y.with_sign_of(x), math.nan)


def _log1p_or_log2x(x: Lane, w: Lane, low: Lane, large: Lane) -> Lane:
    """log(1 + w + low), or log(2 x) where x is large."""
    w = select(large, x, w)
    low = select(large, 0.0, low)
    y = log1p_sum(w, low, select(large, x.like(1.0), 0.0))
    return select(x < math.inf, y, x)
