"""sin, cos and tan: polynomials on |r| <= pi/4, chosen by the quarter turn."""

from __future__ import annotations

from onescan.emit.math.coefficients import COS, SIN, TAN
from onescan.emit.math.features import GPU, has
from onescan.emit.math.reduction import reduce_turn, reduce_turn_pair
from onescan.emit.math.types import Lane, elementary, fma, one_way, poly, select

#: below which a number of quarter turns is 0, for certain
EIGHTH = 0.785


def sin_cos(r: Lane) -> tuple[Lane, Lane]:
    """sin and cos of |r| <= pi/4."""
    bits = r.format.bits
    z = r * r
    sine = fma(r * z, poly(z, SIN[bits]), r)
    cosine = fma(z * z, poly(z, COS[bits]), fma(z, -0.5, 1.0))
    return sine, cosine


def keep_zero(x: Lane, y: Lane) -> Lane:
    """y, or x itself where it is so small that only its sign and digits count."""
    return select(x.abs() < x.format.tiny, x, y)


def _wave(x: Lane, quarter: int) -> Lane:
    """sin(x + quarter * pi/2); a small number that is alone is not reduced."""
    if x.is_vector or has(x.b, GPU):
        return _turned(x, quarter)
    small = x.abs() < EIGHTH
    return one_way(small, lambda: sin_cos(x)[quarter], lambda: _turned(x, quarter))


def _turned(x: Lane, quarter: int) -> Lane:
    n, r = reduce_turn(x)
    if quarter:
        n = n + quarter
    y = select((n & 1).equals(0), *sin_cos(r))
    sign = (n & 2) << (x.format.bits - 2)
    return (y.bits() ^ sign).as_float(x)


@elementary
def sin(x: Lane) -> Lane:
    return keep_zero(x, _wave(x, 0))


@elementary
def cos(x: Lane) -> Lane:
    return _wave(x, 1)


def tan_pair(r: Lane, low: Lane) -> Lane:
    """tan(r + low) for |r| <= pi/4; its derivative is 1 + tan**2."""
    z = r * r
    cubic = r * z * poly(z, TAN[r.format.bits])
    t = r + cubic
    return r + fma(low, fma(t, t, 1.0), cubic)


@elementary
def tan(x: Lane) -> Lane:
    n, r, low = reduce_turn_pair(x)
    t = tan_pair(r, low)
    odd = (n & 1).equals(1)
    return keep_zero(x, select(odd, x.like(-1.0), t) / select(odd, t, 1.0))
