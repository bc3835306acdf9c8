"""tanh, sinh, cosh and their inverses."""

from __future__ import annotations

from onescan.emit.math.coefficients import TANH
from onescan.emit.math.exponential import exp_plus_one
from onescan.emit.math.types import Lane, elementary, fma, poly, select

# Where tanh is 1 to the last bit.
TANH_ONE = {32: 10.0, 64: 20.0}
TANH_SMALL = 0.625


@elementary
def tanh(x: Lane) -> Lane:
    """An odd polynomial near zero, 1 - 2 / (exp(2|x|) + 1) elsewhere."""
    bits = x.format.bits
    size = x.abs()
    one = x.like(TANH_ONE[bits])
    clamped = select(one < size, one, size)
    large = 1.0 - 2.0 / exp_plus_one(clamped + clamped)
    z = size * size
    small = fma(size * z, poly(z, TANH[bits]), size)
    return select(size < TANH_SMALL, small, large).with_sign_of(x)
