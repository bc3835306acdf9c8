"""Every elementwise primitive: its function, its types, how exact it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np
from engines import FLOATS, INTS
from jax import lax
from jax.extend.core import primitives as jp

SIGNED = INTS[:4]


@dataclass(frozen=True)
class Op:
    f: Callable[..., Any]
    arity: int
    dtypes: tuple[str, ...]
    ulps: int = 0  # from XLA's result, or from the exact one
    exact: Callable[..., Any] | None = None  # in NumPy, for long doubles
    floor: float = 0.0  # results closer to zero have the units of this one
    subnormals: bool = True  # whether XLA has one answer for them


def by_mpmath(f: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function with fifty digits; NaN at its poles and where it is not real."""

    def exactly(x: float) -> float:
        try:
            with mpmath.workdps(50):
                return float(f(mpmath.mpf(float(x))))
        except (ValueError, TypeError, ZeroDivisionError, OverflowError):
            return float("nan")

    return np.vectorize(exactly, [float])


#: between their poles these two go through zero, where no relative error is bounded:
#: the terms they are the difference of are about one there
ROOTS = {"digamma", "lgamma"}
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, "bool")

OPS: dict[str, Op] = {
    "abs": Op(lax.abs, 1, (*FLOATS, *SIGNED)),
    "add": Op(lax.add, 2, NUMBERS),
    "and": Op(lax.bitwise_and, 2, (*INTS, "bool")),
    "ceil": Op(lax.ceil, 1, FLOATS),
    "clamp": Op(lambda x, y: lax.clamp(jnp.minimum(x, y), x, y), 2, NUMBERS),
    "clamp_scalar": Op(
        lambda x: lax.clamp(x.dtype.type(1), x, x.dtype.type(3)), 1, NUMBERS
    ),
    "clz": Op(lax.clz, 1, INTS),
    "div": Op(lax.div, 2, NUMBERS),
    "eq": Op(lax.eq, 2, ALL),
    **{
        primitive.name: Op(primitive.bind, 2, (*FLOATS, *INTS))
        for primitive in (jp.eq_to_p, jp.le_to_p, jp.lt_to_p)
    },
    "floor": Op(lax.floor, 1, FLOATS),
    "ge": Op(lax.ge, 2, ALL),
    "gt": Op(lax.gt, 2, ALL),
    "is_finite": Op(lax.is_finite, 1, FLOATS),
    "le": Op(lax.le, 2, ALL),
    "lt": Op(lax.lt, 2, ALL),
    "max": Op(lax.max, 2, ALL),
    "min": Op(lax.min, 2, ALL),
    "mul": Op(lax.mul, 2, NUMBERS),
    "ne": Op(lax.ne, 2, ALL),
    "neg": Op(lax.neg, 1, NUMBERS),
    "nextafter": Op(lax.nextafter, 2, FLOATS),
    "not": Op(lax.bitwise_not, 1, (*INTS, "bool")),
    "or": Op(lax.bitwise_or, 2, (*INTS, "bool")),
    "population_count": Op(lax.population_count, 1, INTS),
    "rem": Op(lax.rem, 2, NUMBERS, subnormals=False),
    "round_away": Op(
        lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), 1, FLOATS
    ),
    "round_even": Op(
        lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), 1, FLOATS
    ),
    "select": Op(lambda x, y: lax.select_n(x > y, x, y), 2, NUMBERS),
    "select_of_three": Op(
        lambda x, y: lax.select_n(
            (x > y).astype(jnp.int32) + (x > 0).astype(jnp.int32),
            x,
            y,
            jnp.zeros_like(x),
        ),
        2,
        NUMBERS,
    ),
    "shift_left": Op(lax.shift_left, 2, INTS),
    "shift_right_arithmetic": Op(lax.shift_right_arithmetic, 2, INTS),
    "shift_right_logical": Op(lax.shift_right_logical, 2, INTS),
    "sign": Op(lax.sign, 1, NUMBERS),
    "square": Op(lax.square, 1, NUMBERS),
    "sub": Op(lax.sub, 2, NUMBERS),
    "xor": Op(lax.bitwise_xor, 2, (*INTS, "bool")),
    **{
        f"integer_pow_{n}": Op(
            lambda x, n=n: lax.integer_pow(x, n),
            1,
            FLOATS if n < 0 else NUMBERS,
            4,
            subnormals=False,
        )
        for n in (-2, -1, 2, 3, 5, 8)
    },
    **{
        name: Op(
            getattr(lax, name),
            1,
            FLOATS,
            8 if name in ROOTS else 2,
            exact,
            floor=1.0 if name in ROOTS else 0.0,
            subnormals=False,
        )
        for name, exact in {
            "acos": np.arccos,
            "acosh": np.arccosh,
            "asin": np.arcsin,
            "asinh": np.arcsinh,
            "atan": np.arctan,
            "atanh": np.arctanh,
            "cbrt": np.cbrt,
            "cos": np.cos,
            "cosh": np.cosh,
            "exp": np.exp,
            "exp2": np.exp2,
            "expm1": np.expm1,
            "log": np.log,
            "log1p": np.log1p,
            "logistic": lambda x: 1 / (1 + np.exp(-x)),
            "rsqrt": lambda x: 1 / np.sqrt(x),
            "sin": np.sin,
            "sinh": np.sinh,
            "tan": np.tan,
            "tanh": np.tanh,
            "digamma": by_mpmath(mpmath.digamma),
            "erf": by_mpmath(mpmath.erf),
            "erf_inv": by_mpmath(mpmath.erfinv),
            "erfc": by_mpmath(mpmath.erfc),
            "lgamma": by_mpmath(lambda x: mpmath.re(mpmath.loggamma(x))),
        }.items()
    },
    "sqrt": Op(lax.sqrt, 1, FLOATS),
    "atan2": Op(lax.atan2, 2, FLOATS, 2, np.arctan2, subnormals=False),
    "pow": Op(lax.pow, 2, FLOATS, 2, np.power, subnormals=False),
    "pow_int": Op(
        lambda x: lax.pow(x, jnp.full(x.shape, -3, jnp.int32)),
        1,
        FLOATS,
        4,
        subnormals=False,
    ),
    **{
        f"to_{target}": Op(
            lambda x, target=target: lax.convert_element_type(x, target), 1, ALL
        )
        for target in ALL
    },
    **{
        f"bits_as_{target}": Op(
            lambda x, target=target: lax.bitcast_convert_type(x, target),
            1,
            tuple(
                t
                for t in NUMBERS
                if jnp.dtype(t).itemsize == jnp.dtype(target).itemsize
            ),
        )
        for target in (
            "uint8",
            "int16",
            "bfloat16",
            "float32",
            "uint32",
            "int64",
            "float64",
        )
    },
    **{
        f"reduce_precision_{e}_{m}": Op(
            lambda x, e=e, m=m: lax.reduce_precision(x, e, m), 1, FLOATS
        )
        for e, m in ((5, 10), (8, 7), (8, 23), (4, 3), (11, 30))
    },
}
