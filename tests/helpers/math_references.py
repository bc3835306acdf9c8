"""Where the elementary functions are measured, and the results they should have."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import mpmath
import numpy as np
import scipy.special
from math_loops import BINARY

SINGLE, DOUBLE = np.float32, np.float64
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, -1.5, 4.0]
EDGES += [math.inf, -math.inf, math.nan]


def logistic(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


WIDE: dict[str, Any] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cos": np.cos,
    "cosh": np.cosh,
    "digamma": scipy.special.digamma,
    "erf": scipy.special.erf,
    "erf_inv": scipy.special.erfinv,
    "erfc": scipy.special.erfc,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "lgamma": scipy.special.gammaln,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "logistic": logistic,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


def mp_log(x: Any) -> Any:
    return mpmath.log(x) if x else -mpmath.inf


EXACT: dict[str, Any] = {
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atan": mpmath.atan,
    "atan2": mpmath.atan2,
    "atanh": mpmath.atanh,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "cos": mpmath.cos,
    "cosh": mpmath.cosh,
    "digamma": mpmath.digamma,
    "erf": mpmath.erf,
    "erf_inv": mpmath.erfinv,
    "erfc": mpmath.erfc,
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "expm1": mpmath.expm1,
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "log": mp_log,
    "log1p": mpmath.log1p,
    "log2": lambda x: mp_log(x) / mpmath.log(2),
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "pow": mpmath.power,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sin": mpmath.sin,
    "sinh": mpmath.sinh,
    "sqrt": mpmath.sqrt,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
}
# Where a function is real, where it is not constant, and where mpmath is quick.
DOMAIN = {
    "acos": (-1, 1),
    "acosh": (1, math.inf),
    "asin": (-1, 1),
    "atanh": (-1, 1),
    "cosh": (-711, 711),
    "digamma": (1e-300, 1e15),
    "erf": (-7, 7),
    "erf_inv": (-1, 1),
    "erfc": (-7, 28),
    "exp": (-746, 710),
    "exp2": (-1076, 1025),
    "expm1": (-60, 710),
    "lgamma": (1e-300, 1e305),
    "log": (0, math.inf),
    "log1p": (-1, math.inf),
    "log2": (0, math.inf),
    "logistic": (-747, 60),
    "rsqrt": (0, math.inf),
    "sinh": (-711, 711),
    "sqrt": (0, math.inf),
    "tanh": (-30, 30),
}


def sample(dtype: Any, count: int, seed: int = 0) -> np.ndarray:
    """Numbers of every exponent, and many where functions turn."""
    random = np.random.default_rng(seed)
    info = np.finfo(dtype)
    word = np.uint32 if dtype == SINGLE else np.uint64
    bits = random.integers(0, np.iinfo(word).max, count, dtype=word)
    # Around these, at every distance that still makes a difference.
    centres = np.array([1.0, -1.0, 0.5, -0.5, 2.0, 0.625, 1.4616321449683622])
    near = random.choice(centres, count)
    near += random.standard_normal(count) * 2.0 ** random.uniform(-info.nmant, 0, count)
    quarters = random.integers(-4000, 4000, count) * (math.pi / 2)
    extreme = math.log(float(info.max))
    parts = [
        bits.view(dtype),
        near,
        quarters,
        random.uniform(-1, 1, count),
        random.uniform(1, 3, count),
        random.uniform(-12, 12, count),
        random.uniform(-1.2 * extreme, 1.05 * extreme, count),
        np.array(EDGES),
        np.array([info.smallest_subnormal, info.tiny, info.max]),
        -np.array([info.smallest_subnormal, info.tiny, info.max]),
    ]
    return np.concatenate([part.astype(dtype) for part in parts])


def arguments(name: str, dtype: Any, count: int) -> tuple[np.ndarray, ...]:
    x = sample(dtype, count)
    if name not in BINARY:
        return (x,)
    y = np.random.default_rng(1).permutation(sample(dtype, count, seed=2))
    if name == "pow":
        # Half of the powers within range.
        reach = np.log2(float(np.finfo(dtype).max)) * 1.15
        wanted = np.random.default_rng(3).uniform(-reach, reach, x.size)
        fitting = (wanted / np.log2(np.abs(x.astype(DOUBLE)))).astype(dtype)
        x, y = np.concatenate([x, np.abs(x)]), np.concatenate([y, fitting])
    return x, y


def in_domain(name: str, x: np.ndarray) -> np.ndarray:
    low, high = DOMAIN.get(name, (-math.inf, math.inf))
    return x[np.isfinite(x) & (x >= low) & (x <= high)]


@cache
def single_case(name: str) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Arguments of every kind and float64 results, which are exact enough."""
    inputs = arguments(name, SINGLE, 60_000)
    if name in ("lgamma", "digamma"):
        # SciPy is not exact left of zero: see test_gamma_left_of_zero.
        inputs = (inputs[0][~np.signbit(inputs[0])],)
    return inputs, WIDE[name](*(x.astype(DOUBLE) for x in inputs))


@cache
def double_case(name: str) -> tuple[tuple[np.ndarray, ...], list[Any]]:
    """Arguments where the function is finite or close to it, and exact results."""
    inputs = arguments(name, DOUBLE, 800)
    if name == "pow":
        x, y = np.abs(inputs[0]), inputs[1]
        reach = np.abs(y * np.log2(x))
        usual = (x > 0) & np.isfinite(reach) & (reach < 1100)
        inputs = (x[usual], y[usual])
    elif name == "atan2":
        # mpmath has no negative zero; the edges are compared with XLA.
        usual = np.isfinite(inputs[0]) & np.isfinite(inputs[1]) & (inputs[0] != 0)
        inputs = tuple(x[usual] for x in inputs)
    else:
        inputs = (in_domain(name, inputs[0]),)
        if name == "rsqrt":
            inputs = (inputs[0][~np.signbit(inputs[0])],)
    with mpmath.workdps(40):
        rows = zip(*(map(float, x) for x in inputs), strict=True)
        return inputs, [_exact(name, *map(mpmath.mpf, row)) for row in rows]


def _exact(name: str, *x: Any) -> Any:
    if name == "erf_inv" and abs(x[0]) == 1:
        return x[0] * mpmath.inf
    if name == "atanh" and abs(x[0]) == 1:
        return x[0] * mpmath.inf
    if name == "rsqrt" and not x[0]:
        return mpmath.inf
    if name == "log1p" and x[0] == -1:
        return -mpmath.inf
    return EXACT[name](*x)
