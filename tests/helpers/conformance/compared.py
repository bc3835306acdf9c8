"""How far the results of an operation are from eager JAX's, in one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from engines import is_subnormal

#: results that are looked at with many digits, the worst ones
JUDGED = 60


@dataclass(frozen=True)
class Found:
    """The results of an operation in a type, against eager JAX's."""

    name: str
    dtype: str
    count: int
    different: int  # another integer, or NaN, infinity or sign where there is none
    ulps: int  # the largest distance of the others, in units in the last place
    ours: int | None  # how far ours is from the exact result there, where known
    small: int  # numbers too small to be normal, going in or out, that differ
    example: str = ""
    small_example: str = ""


def is_float(x: np.ndarray) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def ordered(x: np.ndarray) -> np.ndarray:
    """Floats as whole numbers that count units in the last place."""
    bits = x.view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits)


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Units in the last place between floats; as float64, exact up to 2**53."""
    x, y = (ordered(v).astype(np.int64) for v in (a, b))
    larger, smaller = (f(x, y).view(np.uint64) for f in (np.maximum, np.minimum))
    return (larger - smaller).astype(np.float64)


def compared(
    name: str,
    dtype: str,
    args: Sequence[np.ndarray],
    a: np.ndarray,
    b: np.ndarray,
    exact: Callable[..., Any] | None = None,
) -> Found:
    """What differs between native results `a` and those of eager JAX, `b`."""
    assert (a.dtype, a.shape) == (b.dtype, b.shape), name
    a, b, args = a.ravel(), b.ravel(), [np.asarray(x) for x in args]
    along = [x.ravel() for x in args if x.size == a.size]
    small = np.zeros(a.shape, bool)
    for x in along:
        small |= is_subnormal(x)
    wrong, apart = a != b, np.zeros(a.shape)
    if is_float(a):
        with np.errstate(all="ignore"):
            nan = np.isnan(a) | np.isnan(b)
            special = np.isinf(a) | np.isinf(b) | (np.signbit(a) != np.signbit(b))
            same = (a == b) & (np.signbit(a) == np.signbit(b))
            apart = np.where(nan | same, 0, distance(a, b))
            wrong = np.where(nan, np.isnan(a) != np.isnan(b), special & ~same)
            tiny = float(jnp.finfo(a.dtype).tiny)
            below = (np.abs(a) < tiny) & (np.abs(b) < tiny)
            small |= below & ((a != 0) | (b != 0)) & ~same
    off = wrong | (apart > 0)
    usual = np.where(small, 0, apart)
    plain = np.where(wrong, 0, usual)
    at = np.argsort(-plain, kind="stable")[:JUDGED]
    at = at[plain[at] > 0]
    ulps = int(plain.max(initial=0))
    return Found(
        name,
        dtype,
        a.size,
        int((wrong & ~small).sum()),
        ulps,
        _error(exact, along, a, at) if exact and ulps > 2 and along else None,
        int((off & small).sum()),
        _example(args, a, b, off & ~small, usual),
        _example(args, a, b, off & small, apart),
    )


def _error(exact: Any, args: list[np.ndarray], a: np.ndarray, at: Any) -> int:
    """The largest error of our results at some places."""
    with np.errstate(all="ignore"):
        wide = [x[at].astype(np.float64).astype(np.longdouble) for x in args]
        right = np.asarray(exact(*wide)).astype(np.float64).astype(a.dtype)
        found = distance(a[at], right)
        found = np.where(np.isnan(right) & np.isnan(a[at]), 0, found)
    return int(found.max(initial=0))


def _example(args: Any, a: Any, b: Any, where: np.ndarray, apart: np.ndarray) -> str:
    if not where.any():
        return ""
    k = int(np.argmax(np.where(where, apart + 1, 0)))
    given = ", ".join(_plain(x.ravel()[k]) for x in args if x.size == a.size)
    return f"({given}): {_plain(a[k])}, eager {_plain(b[k])}"


def _plain(x: Any) -> str:
    number = x.item()
    return f"{float(number):.9g}" if isinstance(number, float) else str(number)
