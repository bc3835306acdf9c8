"""erf, erfc and erf_inv.

erf near zero is a polynomial. erfc is exp(-x**2) / (x + 1/2) times a polynomial
in (x - k) / (x + k), which maps the half axis to an interval; x**2 and the quotient
keep their rounding errors. erf_inv is x times polynomials in w = -log(1 - x**2), or in
sqrt(w) where w is large.
"""

from __future__ import annotations

import math

from onescan.emit.math.coefficients import (
    ERF,
    ERF_FAR,
    ERF_INV,
    ERF_INV_EDGE,
    ERF_INV_FAR,
    ERFC,
    EXP,
)
from onescan.emit.math.exponential import EXP_RANGE, reduce_exp
from onescan.emit.math.logarithm import log_positive
from onescan.emit.math.scaling import scale
from onescan.emit.math.types import (
    DOUBLE,
    Lane,
    elementary,
    fast_two_sum,
    fma,
    poly,
    rounding_error,
    select,
    series,
    split,
    two_product,
)

# Where the polynomial of erf is 1; the k of erfc, and where erfc is zero.
ERF_ONE = 3.95
ERFC_MIDDLE = {32: 2.0, 64: 4.0}
ERFC_END = {32: 10.2, 64: 27.3}


def _clamp_size(x: Lane, end: float) -> Lane:
    size, highest = x.abs(), x.like(end)
    return select(highest < size, highest, size)


def _erfc_far(x: Lane) -> Lane:
    """erfc for 1/2 <= x <= ERFC_END.

    2**n (1 + r + t) times P / (x + 1/2): everything that was lost to rounding on the
    way is gathered in `rest` and `ratio_low`, and added at the end.
    """
    bits = x.format.bits
    middle = ERFC_MIDDLE[bits]
    square, square_low = two_product(x, x)
    n, r, lost = reduce_exp(-square, -square_low)
    t = fma(r * r, poly(r, EXP[bits]), lost)
    denominator = x + 0.5
    lost = x - (denominator - 0.5)
    inverse = 1.0 / denominator
    product, low = two_product(inverse, denominator)
    rest = (1.0 - product) - (low + inverse * lost)
    q = (x - middle) / (x + middle)
    first, *others = ERFC[bits]
    p, p_low = fast_two_sum(x.like(first), q * poly(q, others))
    p_low = p_low + rounding_error(first, x.format)
    ratio, ratio_low = two_product(inverse, p)
    ratio_low = fma(ratio, rest, fma(inverse, p_low, ratio_low))
    y = ratio + fma(ratio, r, fma(ratio, t, fma(ratio_low, r, ratio_low)))
    return scale(y, n, -square < EXP_RANGE[bits][1])


@elementary
def erfc(x: Lane) -> Lane:
    bits = x.format.bits
    far = _erfc_far(_clamp_size(x, ERFC_END[bits]))
    far = select(x < 0.0, 2.0 - far, far)
    near = (1.0 - x) - x * poly(x * x, ERF[bits])
    return select((x < 0.5) & (x > -1.0), near, far)


@elementary
def erf(x: Lane) -> Lane:
    bits = x.format.bits
    if x.format is DOUBLE:
        far = 1.0 - _erfc_far(_clamp_size(x, ERFC_END[bits]))
    else:
        far = series(_clamp_size(x, ERF_ONE) - 2.5, ERF_FAR[bits])
    near = fma(x, poly(x * x, ERF[bits]), x)
    return select(x.abs() < 1.0, near, far.with_sign_of(x))


@elementary
def erf_inv(x: Lane) -> Lane:
    size = x.abs()
    to_one = 1.0 - size
    w = -log_positive(fma(-to_one, to_one, to_one + to_one))
    root = w.sqrt()
    bits = x.format.bits
    rest = series(root - 2.5, ERF_INV_FAR[bits])
    if x.format is DOUBLE:
        edge = series(root - 5.0, ERF_INV_EDGE[bits])
        rest = select(w < 16.0, rest, edge)
    # Most of what the root lost to rounding, (w - root**2) / (2 root).
    half, other_half = split(root)
    rest_of_root = ((w - half * half) - other_half * (root + half)) * 0.2
    # size (root + rest), where size is almost one
    far = root + (fma(-to_one, root + rest, rest) + rest_of_root)
    first, *others = ERF_INV[bits]
    ratio = w * poly(w, others) + rounding_error(first, x.format)
    near = fma(size, ratio, size * first)
    y = select(w < 2.25, near, far)
    y = select(size.equals(1.0), math.inf, y)
    return select(size <= 1.0, y.with_sign_of(x), math.nan)
