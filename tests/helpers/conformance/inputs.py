"""Numbers at which an operation is tried: all there are where they are few."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from engines import INTS

#: numbers of a large type, besides the special ones, for an operation of one operand
#: and for each operand of two
RANDOM = 20_000


def _is_float(dtype: str) -> bool:
    return bool(jnp.issubdtype(jnp.dtype(dtype), jnp.floating))


def every(dtype: str) -> np.ndarray:
    """All numbers of a type of 8 or 16 bits."""
    if dtype == "bool":
        return np.array([False, True])
    bits = 8 * jnp.dtype(dtype).itemsize
    return np.arange(1 << bits, dtype=f"uint{bits}").view(jnp.dtype(dtype))


def special(dtype: str) -> np.ndarray:
    """Zeros, infinities, NaN, subnormal and largest numbers, powers and neighbours."""
    kind = jnp.dtype(dtype)
    if dtype == "bool":
        return every(dtype)
    if dtype in INTS:
        info = np.iinfo(dtype)
        powers = [1 << k for k in range(info.bits)]
        some = {s * p + d for p in powers for d in (-1, 0, 1) for s in (1, -1)}
        some |= {0, info.min, info.max, info.bits, 10, 100, 1000}
        return np.array(sorted(n for n in some if info.min <= n <= info.max), dtype)
    info = jnp.finfo(dtype)
    tiny, eps = float(info.tiny), float(info.eps)
    step = max(1, (info.maxexp - info.minexp) // 60)
    powers = [2.0**k for k in range(info.minexp, info.maxexp, step)]
    some = [0.0, np.inf, float(info.max), float(info.max) * (1 - eps / 2), tiny]
    some += [tiny * f for f in (0.999, 0.75, 0.5, 0.25, eps, 3 * eps, 1.5, 2)]
    some += [p * f for p in [*powers, 0.5, 1.0, 2.0] for f in (1, 1 + eps, 1 - eps / 2)]
    some += [n + f for n in range(20) for f in (0.0, 0.5, 0.25)]
    some += [np.pi * n / 2 for n in range(1, 9)]
    some += [2.0**b + d for b in (8, 15, 16, 31, 32, 63, 64) for d in (-1, -0.5, 0, 1)]
    some += [86.0, 87.5, 88.0, 88.7, 89.0, 103.9, 104.5, 709.5, 710.0, 745.2, 746.0]
    some += [11.09, 1e-3, 1e-8, 1e10, 1e22]
    with np.errstate(over="ignore"):
        numbers = np.array(some).astype(kind)
    return np.concatenate([numbers, -numbers, np.array([np.nan]).astype(kind)])


def random(dtype: str, count: int, seed: int) -> np.ndarray:
    """Any bits, and ordinary numbers."""
    rng = np.random.default_rng([seed, len(dtype), count])
    kind = jnp.dtype(dtype)
    raw = rng.integers(0, 1 << 8, (count, kind.itemsize), np.uint8)
    if dtype == "bool":
        return rng.random(count) < 0.5
    wild = np.ascontiguousarray(raw).view(kind).ravel()
    if _is_float(dtype):
        usual = rng.standard_normal(count) * rng.choice([0.01, 1.0, 10.0, 100.0], count)
    else:
        usual = rng.integers(0 if kind.kind == "u" else -100, 100, count)
    return np.where(rng.random(count) < 0.5, wild, usual.astype(kind))


def of_one(dtype: str, count: int = RANDOM) -> tuple[np.ndarray]:
    """The numbers for an operation of one operand."""
    if jnp.dtype(dtype).itemsize <= 2:
        return (every(dtype),)
    return (np.concatenate([special(dtype), random(dtype, count, 1)]),)


def of_two(dtype: str, count: int = RANDOM) -> tuple[np.ndarray, np.ndarray]:
    """The pairs for an operation of two: every one of 8 bits, special with special."""
    small = jnp.dtype(dtype).itemsize == 1
    some = every(dtype) if small else special(dtype)
    if not small and len(some) > 300:
        some = some[:: len(some) // 300 + 1]
    x, y = (v.ravel() for v in np.meshgrid(some, some, indexing="ij"))
    if small:
        return x, y
    more = [random(dtype, count, seed) for seed in (1, 2)]
    near = (
        np.concatenate([more[0], random(dtype, count, 3)]),
        np.concatenate([more[1], np.resize(special(dtype), count)]),
    )
    return np.concatenate([x, near[0]]), np.concatenate([y, near[1]])


def rows(values: np.ndarray, width: int) -> Any:
    """As steps of `width` numbers; the last number fills up the last step."""
    missing = -len(values) % width
    return np.concatenate([values, np.repeat(values[-1:], missing)]).reshape(-1, width)
