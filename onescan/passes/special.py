"""Special functions as the arithmetic that computes them.

JAX writes some of its special functions as programs of its own, and `compat` knows
those.  The others XLA writes out when it compiles a program; they are written out
here: Hurwitz' zeta function by Euler's and Maclaurin's summation, the derivatives of
digamma by zeta, and the Bessel function of the gradient of `i0e` by series of
Chebyshev's polynomials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import comb, factorial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from onescan import compat

#: terms of a sum that zeta adds up one by one, and of the series for all the others
SUMMED, CORRECTIONS = 9, 12
#: i1e(x) / x in x / 4 - 1, for x up to 8
NEAR = (
    *(0.12629359322181682, -0.17641651835783406, 0.1026436586898471),
    *(-0.05294598120809499, 0.024726449030626516, -0.010564084894626197),
    *(0.004156422944312888, -0.0015135724506312532, 0.0005122859561685758),
    *(-0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05),
    *(3.4702513081376785e-06, -8.568720264695455e-07, 2.0032947535521353e-07),
    *(-4.445059128796328e-08, 9.381537386495773e-09, -1.8872497517228294e-09),
    *(3.625590281552117e-10, -6.663489723502027e-11, 1.1736186298890901e-11),
    *(-1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14),
    *(7.600684294735408e-15, -1.1055969477353862e-15, 1.5536319577362005e-16),
)
#: i1e(x) * sqrt(x) in 16 / x - 1, for x from 8
FAR = (
    *(0.38928811750914005, -0.009761097491361469, -0.00011058893876262352),
    *(-3.882564808877886e-06, -2.5122362378682776e-07, -2.6314688469085282e-08),
    *(-3.835380385777873e-09, -5.589743464016519e-10, -1.897495794651333e-11),
    *(3.252603565877801e-11, 1.4125807601781069e-11, 2.0356283857622225e-12),
    *(-7.198550265714564e-13, -4.083552543067425e-13, -2.1015283582445884e-14),
    *(4.272427414173939e-14, 1.0420393752543414e-14, -3.814510178931047e-15),
    *(-1.880257702377883e-15, 3.307335279580002e-16, 2.963389322328026e-16),
)


def special_function(eqn: Any) -> Callable[..., Any] | None:
    """What an equation of a special function computes, if that can be written out."""
    if written := WRITTEN.get(eqn.primitive.name):
        return _in_single_precision(written)
    return compat.special_function(eqn)


def _in_single_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, of numbers of 16 bits by way of 32."""

    def of(*args: Any) -> Any:
        dtype = args[0].dtype
        wide = [x.astype(jnp.promote_types(dtype, jnp.float32)) for x in args]
        return function(*wide).astype(dtype)

    return of


def zeta(x: Any, q: Any) -> Any:
    """The sum of (k + q) ** -x over all k from 0."""
    power = total = q**-x
    base = q
    for _ in range(SUMMED):
        base = base + 1
        power = base**-x
        total = total + power
    rest, whole = power, total + power * base / (x - 1) - power / 2
    factor = jnp.ones_like(x)
    for k in range(CORRECTIONS):
        factor = factor * (x + 2 * k)
        rest = rest / base
        whole = whole + factor * rest / _ratio(k)
        factor = factor * (x + 2 * k + 1)
        rest = rest / base
    few = jnp.abs(power) <= jnp.abs(total) * np.finfo(total.dtype).eps
    found = jnp.where(few, total, whole)
    found = jnp.where((x < 1) | ((q <= 0) & (x != jnp.floor(x))), jnp.nan, found)
    # at its poles the sign is known where all powers are positive
    pole = jnp.where(jnp.fmod(x, 2) == 0, jnp.inf, jnp.nan)
    found = jnp.where((q <= 0) & (q == jnp.floor(q)), pole, found)
    return jnp.where(x == 1, jnp.inf, found)


def _ratio(k: int) -> float:
    """(2 k + 2)! by Bernoulli's number of that index."""
    return float(factorial(2 * k + 2) / _bernoulli()[2 * k + 2])


@cache
def _bernoulli() -> list[Fraction]:
    numbers: list[Fraction] = []
    for n in range(2 * CORRECTIONS + 1):
        known = sum(comb(n + 1, k) * b for k, b in enumerate(numbers))
        numbers.append(Fraction(int(n == 0)) - Fraction(known, n + 1))
    return numbers


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of digamma."""
    sign = jnp.where(n == 2 * jnp.floor(n / 2), -1, 1).astype(x.dtype)
    higher = sign * jnp.exp(lax.lgamma(n + 1)) * zeta(n + 1, x)
    found = jnp.where(n == 0, lax.digamma(x), higher)
    return jnp.where((n < 0) | (n != jnp.floor(n)), jnp.nan, found)


def bessel_i1e(x: Any) -> Any:
    """The modified Bessel function of the first kind and order, times exp(-|x|)."""
    size = jnp.abs(x)
    near = size * _chebyshev(size / 4 - 1, NEAR)
    far = _chebyshev(16 / size - 1, FAR) / jnp.sqrt(size)
    return jnp.sign(x) * jnp.where(size <= 8, near, far)


def _chebyshev(t: Any, series: Sequence[float]) -> Any:
    """The sum of a series of Chebyshev's polynomials, by Clenshaw."""
    least = np.finfo(t.dtype).eps / 16
    terms = [c for c in series if abs(c) > least]
    last = before = jnp.zeros_like(t)
    for c in reversed(terms[1:]):
        last, before = c + 2 * t * last - before, last
    return terms[0] + t * last - before


WRITTEN: dict[str, Callable[..., Any]] = {
    "bessel_i1e": bessel_i1e,
    "polygamma": polygamma,
    "zeta": zeta,
}
