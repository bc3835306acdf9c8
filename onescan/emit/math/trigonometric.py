"""sin, cos and tan.

x = n pi/2 + r with |r| <= pi/4: n pi/2 is subtracted in pieces, all but the last of so
few bits that their products with n are exact for |n| < LARGEST_TURN.
"""

from __future__ import annotations

import math

from onescan.emit.math.coefficients import COS, HALF_PI, SIN
from onescan.emit.math.types import Lane, elementary, fma, poly, select


def reduce_turn(x: Lane) -> tuple[Lane, Lane]:
    """The quarter turns n (low bits of an integer) and the rest r."""
    bias = x.format.round_bias
    shifted = fma(x, 2 / math.pi, bias)
    n = shifted - bias
    r = x
    for piece in HALF_PI[x.format.bits]:
        r = fma(n, -piece, r)
    return shifted.bits(), r


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
    """sin(x + quarter * pi/2)."""
    n, r = reduce_turn(x)
    sine, cosine = sin_cos(r)
    if quarter:
        n = n + quarter
    y = select((n & 1).equals(0), sine, cosine)
    sign = (n & 2) << (x.format.bits - 2)
    return (y.bits() ^ sign).as_float(x)


@elementary
def sin(x: Lane) -> Lane:
    return keep_zero(x, _wave(x, 0))


@elementary
def cos(x: Lane) -> Lane:
    return _wave(x, 1)


@elementary
def tan(x: Lane) -> Lane:
    n, r = reduce_turn(x)
    sine, cosine = sin_cos(r)
    even = (n & 1).equals(0)
    y = select(even, sine, -cosine) / select(even, cosine, sine)
    return keep_zero(x, y)
