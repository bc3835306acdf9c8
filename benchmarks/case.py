"""`Case`: one loop of the benchmark, written once and run by every engine.

A case's function takes the `scan` to use and `unroll` before its own arguments,
so that stock JAX and onescan run the same code.  `kernel` names hand-written
versions with the same meaning: the C function of `native.c` and the Numba
function of `numba_versions.py` of that name, both called as
``kernel(*sizes, *inputs, *outputs)`` with the flattened arguments of the case
and arrays for its flattened results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

Scan = Callable[..., tuple[Any, Any]]
Build = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]


@dataclass(frozen=True)
class Case:
    name: str  # "lorenz/16/ys": family, size, variant
    steps: int  # of the loop, per call
    build: Build  # -> fn(scan, unroll, *args), args
    ops: float  # arithmetic operations of one step, roughly
    bytes: float  # of xs read and ys written by one step
    kernel: str | None = None
    sizes: tuple[int, ...] = ()
    agree: float = 1.0  # the share of each result's elements that must be close


def normal(seed: int, *shape: int, scale: float = 1.0) -> jax.Array:
    """Float32 data of a fixed seed."""
    rng = np.random.default_rng(seed)
    return jax.numpy.asarray(rng.normal(0.0, scale, shape), "float32")


def uniform(seed: int, *shape: int, low: float = 0.0, high: float = 1.0) -> jax.Array:
    """Float32 data of a fixed seed, between two bounds."""
    rng = np.random.default_rng(seed)
    return jax.numpy.asarray(rng.uniform(low, high, shape), "float32")
