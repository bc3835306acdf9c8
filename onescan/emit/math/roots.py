"""sqrt, rsqrt and cbrt."""

from __future__ import annotations

from onescan.emit.math.types import Lane, elementary


@elementary
def sqrt(x: Lane) -> Lane:
    return x.sqrt()


@elementary
def rsqrt(x: Lane) -> Lane:
    return 1.0 / x.sqrt()
