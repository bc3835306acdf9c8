"""Elementwise primitives in NumPy."""

from __future__ import annotations

import operator as op
from typing import Any

import numpy as np
import scipy.special as sp

from onescan.emit.random import PARITY, ROTATIONS


def threefry(key0: Any, key1: Any, x0: Any, x1: Any) -> list[Any]:
    keys = (key0, key1, key0 ^ key1 ^ np.uint32(PARITY))
    x0, x1 = x0 + key0, x1 + key1
    for group in range(5):
        for r in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r)))
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return [x0, x1]


def _div(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return x / y
    safe = np.where(y == 0, 1, y)
    whole = (x - np.fmod(x, safe)) // safe
    return np.where(y == 0, np.asarray(-1).astype(x.dtype), whole)


def _rem(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y)))


def _logical(x: Any, y: Any) -> Any:
    unsigned = f"u{x.dtype.itemsize}"
    return (x.view(unsigned) >> y.view(unsigned)).view(x.dtype)


def convert(new: Any, x: Any) -> Any:
    """Floats outside the range of an integer become its ends, NaN becomes 0."""
    if x.dtype.kind == "f" and new.kind in "iu":
        low, high = np.iinfo(new).min, np.iinfo(new).max
        inside = np.clip(np.nan_to_num(np.trunc(x), nan=0.0), float(low), float(high))
        return np.where(x >= float(high), np.asarray(high, new), inside.astype(new))
    return x != 0 if new.kind == "b" else x.astype(new)


#: those that NumPy has under another name, or computes otherwise
OTHERS: dict[str, Any] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "add_any": op.add,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "div": _div,
    "erf_inv": sp.erfinv,
    "is_finite": np.isfinite,
    "lgamma": sp.gammaln,
    "logistic": sp.expit,
    "max": np.maximum,
    "min": np.minimum,
    "not": op.invert,
    "rem": _rem,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select_n": lambda i, *xs: np.choose(i.astype(int), np.broadcast_arrays(*xs)),
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "shift_right_logical": _logical,
    "xor": op.xor,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
}
FUNCTIONS: dict[str, Any] = {
    **{
        n: getattr(op, n)
        for n in "abs add eq ge gt le lt mul ne neg pow sub xor".split()
    },
    **{n: getattr(op, f"{n}_") for n in ("and", "or")},
    **{n: getattr(sp, n) for n in ("digamma", "erf", "erfc")},
    **{
        n: getattr(np, n) for n in "cbrt ceil cos cosh exp exp2 expm1 floor log".split()
    },
    **{n: getattr(np, n) for n in "log1p sin sinh sqrt square tan tanh".split()},
    **OTHERS,
}
