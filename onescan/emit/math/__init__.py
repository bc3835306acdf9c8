"""Elementary functions as generic LLVM IR, on scalars or vectors of any width.

`FUNCTIONS` maps JAX's primitive names to emitters: `FUNCTIONS["exp"](builder, value)`.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from onescan.emit.math.arcs import acos, asin, atan, atan2
from onescan.emit.math.error_function import erf, erf_inv, erfc
from onescan.emit.math.exponential import exp, exp2, expm1, logistic
from onescan.emit.math.gamma import digamma, lgamma
from onescan.emit.math.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from onescan.emit.math.logarithm import log, log1p, log2
from onescan.emit.math.power import pow
from onescan.emit.math.roots import cbrt, rsqrt, sqrt
from onescan.emit.math.trigonometric import cos, sin, tan
from onescan.emit.math.types import const

FUNCTIONS: dict[str, Callable[..., ir.Value]] = {
    f.__name__: f
    for f in (
        *(exp, exp2, expm1, logistic),
        *(log, log2, log1p),
        *(tanh, sinh, cosh, asinh, acosh, atanh),
        *(sin, cos, tan),
        *(asin, acos, atan, atan2),
        *(sqrt, rsqrt, cbrt, pow),
        *(erf, erfc, erf_inv, lgamma, digamma),
    )
}

__all__ = ["FUNCTIONS", "const"]
