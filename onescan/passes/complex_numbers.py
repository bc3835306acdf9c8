"""Products and quotients of complex numbers that are pairs.

Smith's method does not overflow where the quotient does not, but knows nothing of zero
and infinity: both parts of such quotients come out as NaN.  One equation of its own,
`ends_p`, stands behind each part and puts in what C and XLA have there; kernels
compute that only where it is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

#: a part of a quotient, the other part, and the parts of both numbers
ends_p = Primitive("onescan_quotient")


class Pair(NamedTuple):
    """The real and the imaginary part of a complex number, or of many."""

    re: Any
    im: Any


def times(x: Pair, y: Pair) -> Pair:
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def over(x: Pair, y: Pair) -> Pair:
    """A quotient."""
    steep = jnp.abs(y.re) < jnp.abs(y.im)
    large, small = (jnp.where(steep, a, b) for a, b in ((y.im, y.re), (y.re, y.im)))
    ratio = small / large
    below = large + small * ratio
    re = jnp.where(steep, x.re * ratio + x.im, x.re + x.im * ratio) / below
    im = jnp.where(steep, x.im * ratio - x.re, x.im - x.re * ratio) / below
    numbers = jnp.broadcast_arrays(re, im, *x, *y)
    re, im, *rest = numbers
    return Pair(
        ends_p.bind(re, im, *rest, imaginary=False),
        ends_p.bind(im, re, *rest, imaginary=True),
    )


def mended(part: Any, other: Any, *numbers: Any, imaginary: bool, xp: Any = jnp) -> Any:
    """A part as it is, unless both are NaN."""
    undone = xp.isnan(part) & xp.isnan(other)
    return xp.where(undone, ends(*numbers, imaginary=imaginary, xp=xp), part)


def ends(a: Any, b: Any, c: Any, d: Any, *, imaginary: bool, xp: Any = jnp) -> Any:
    """A part of (a + b i) / (c + d i) where one is infinite, or the divisor zero."""
    infinite, by_infinite = (xp.isinf(u) | xp.isinf(v) for u, v in ((a, b), (c, d)))
    finite, by_finite = (xp.isfinite(u) & xp.isfinite(v) for u, v in ((a, b), (c, d)))
    inf, zero, nan = (np.array(n, a.dtype) for n in (np.inf, 0, np.nan))
    scale = xp.where(
        infinite & by_finite, inf, xp.where(by_infinite & finite, zero, nan)
    )
    a_, b_ = (xp.where(infinite, _direction(u, xp), u) for u in (a, b))
    c_, d_ = (xp.where(by_infinite, _direction(u, xp), u) for u in (c, d))
    turned = b_ * c_ - a_ * d_ if imaginary else a_ * c_ + b_ * d_
    by_zero = xp.copysign(inf, c) * (b if imaginary else a)
    return xp.where((c == 0) & (d == 0), by_zero, scale * turned)


def _direction(part: Any, xp: Any) -> Any:
    """One for an infinite part, zero for any other, with its sign."""
    return xp.copysign(xp.isinf(part).astype(part.dtype), part)


@ends_p.def_abstract_eval
def _type(part: Any, *rest: Any, imaginary: bool) -> ShapedArray:
    return ShapedArray(part.shape, part.dtype)


ends_p.def_impl(mended)
mlir.register_lowering(ends_p, mlir.lower_fun(mended, multiple_results=False))
