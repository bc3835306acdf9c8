"""Elementwise operations on complex numbers, native loops against eager JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from engines import kernels_alone, run
from jax import lax

import onescan
from conformance import inputs
from conformance.compared import Found
from conformance.elementwise import WIDTH

TYPES = {"complex64": "float32", "complex128": "float64"}
ONE: dict[str, Callable[[Any], Any]] = {
    "abs": lax.abs,
    "conj": lax.conj,
    "cos": lax.cos,
    "exp": lax.exp,
    "imag": lax.imag,
    "integer_pow_-3": lambda x: lax.integer_pow(x, -3),
    "integer_pow_2": lambda x: lax.integer_pow(x, 2),
    "integer_pow_5": lambda x: lax.integer_pow(x, 5),
    "log": lax.log,
    "logistic": lax.logistic,
    "neg": lax.neg,
    "real": lax.real,
    "sign": lax.sign,
    "sin": lax.sin,
    "sqrt": lax.sqrt,
    "square": lax.square,
    "tanh": lax.tanh,
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lax.add,
    "div": lax.div,
    "eq": lax.eq,
    "mul": lax.mul,
    "ne": lax.ne,
    "select": lambda x, y: jnp.where(x.real > y.real, x, y),
    "sub": lax.sub,
}


def joined(real: Any, imaginary: Any, dtype: str) -> np.ndarray:
    result = np.empty(len(real), dtype)
    result.real, result.imag = real, imaginary
    return result


def special(dtype: str, arity: int) -> list[np.ndarray]:
    """Zeros, ones, infinities, NaN, large and small parts, each with each."""
    info = np.finfo(TYPES[dtype])
    some = [0.0, 1.0, np.inf, 3.0, float(info.max) / 4, 4 * float(info.tiny)]
    some = [*some, *(-x for x in some), np.nan][:: 1 if arity == 1 else 2]
    x, y = (v.ravel() for v in np.meshgrid(some, some))
    numbers = joined(x, y, dtype)
    if arity == 1:
        return [numbers]
    return [v.ravel() for v in np.meshgrid(numbers, numbers)]


def ordinary(dtype: str, count: int, seed: int) -> np.ndarray:
    """Of many sizes, and some around the unit circle."""
    rng = np.random.default_rng(seed)
    size = np.where(rng.random(count) < 0.5, 1, 10.0 ** rng.uniform(-8, 8, count))
    parts = rng.standard_normal((2, count)) * size
    circle = np.exp(1j * rng.uniform(-4, 4, count)) * (
        1 + 10.0 ** rng.uniform(-9, -1, count)
    )
    near = rng.random(count) < 0.2
    real, imaginary = np.where(near, circle.real, parts[0]), parts[1]
    return joined(real, np.where(near, circle.imag, imaginary), dtype)


def measured(dtype: str, names: Iterable[str], count: int = 5_000) -> Iterator[Found]:
    """The operations of these names, all of an arity in one loop."""
    chosen = list(names)
    for ops in (ONE, TWO):
        these = {name: ops[name] for name in ops if name in chosen}
        if not these:
            continue
        arity = 1 + (ops is TWO)
        args = [
            inputs.rows(np.concatenate([some, ordinary(dtype, count, k)]), WIDTH)
            for k, some in enumerate(special(dtype, arity))
        ]

        def loop(*xs: Any, these: Any = these) -> Any:
            body = lambda c, x: (c + 1, {name: f(*x) for name, f in these.items()})
            return onescan.scan(body, jnp.int32(0), xs)[1]

        with kernels_alone():
            native = run("native", loop, *args)
            for name, f in these.items():
                eager = jax.device_get(f(*map(jnp.asarray, args)))
                yield compared(name, dtype, args, np.asarray(native[name]), eager)


def compared(name: str, dtype: str, args: Any, a: np.ndarray, b: np.ndarray) -> Found:
    """Distances in units of the size of the whole number, not of each part."""
    unit = float(np.finfo(TYPES[dtype]).eps)
    a, b = a.ravel(), b.ravel()
    if a.dtype == bool:
        wrong, apart = a != b, np.zeros(a.shape)
    else:
        with np.errstate(all="ignore"):
            finite = np.isfinite(a) & np.isfinite(b)
            tiny = float(np.finfo(TYPES[dtype]).tiny)
            size = np.maximum(np.abs(b.astype(np.clongdouble)), tiny)
            apart = np.abs(a.astype(np.clongdouble) - b) / size / unit
            apart = np.where(finite, apart, 0).astype(np.float64)
            wrong = _kind(a.real) != _kind(b.real)
            wrong |= _kind(a.imag) != _kind(b.imag)
    off = wrong | (apart > 0)
    example = ""
    if off.any():
        k = int(np.argmax(np.where(wrong, np.inf, apart)))
        example = (
            f"({', '.join(str(x.ravel()[k]) for x in args)}): {a[k]}, eager {b[k]}"
        )
    most = ceil(np.where(wrong, 0, apart).max(initial=0))
    return Found(name, dtype, a.size, int(wrong.sum()), most, None, 0, example)


def _kind(x: np.ndarray) -> np.ndarray:
    """NaN is 2, an infinity 1 or -1, any other number 0."""
    return np.where(np.isnan(x), 2, np.where(np.isinf(x), np.sign(x), 0))


def names() -> list[str]:
    return sorted({*ONE, *TWO})
