"""Elementwise operations: how far a native loop is from eager JAX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from engine_elementwise import OPS
from engines import kernels_alone, run

import onescan
from conformance import inputs

#: numbers of a step: registers of every width, and some that fill none
WIDTH = 109
#: operations that are compiled together
TOGETHER = 6


@dataclass(frozen=True)
class Found:
    """The results of an operation in a type, and how they differ from eager JAX's."""

    name: str
    dtype: str
    count: int
    different: int  # NaN where the other has none, an infinity, a sign, an integer
    ulps: float  # the largest distance of the rest
    example: str = ""


def ordered(x: np.ndarray) -> np.ndarray:
    """Floats as whole numbers that count units in the last place."""
    bits = x.view(f"i{x.dtype.itemsize}")
    lowest = np.iinfo(bits.dtype).min
    return np.where(bits < 0, lowest - bits, bits)


def compared(
    name: str, dtype: str, args: tuple[Any, ...], a: np.ndarray, b: np.ndarray
) -> Found:
    """What differs between the native results `a` and those of eager JAX."""
    assert (a.dtype, a.shape) == (b.dtype, b.shape), name
    distance = np.zeros(a.shape, np.uint64)
    wrong = a != b
    if jnp.issubdtype(a.dtype, jnp.floating):
        with np.errstate(invalid="ignore"):
            nan = np.isnan(a) | np.isnan(b)
            wrong = (np.isnan(a) != np.isnan(b)) | (
                ~nan & ((np.isinf(a) != np.isinf(b)) | (np.signbit(a) != np.signbit(b)))
            )
            x, y = ordered(a), ordered(b)
            apart = np.where(x > y, x.astype("u8") - y.astype("u8"), 0)
            apart = np.where(y > x, y.astype("u8") - x.astype("u8"), apart)
            distance = np.where(nan | wrong, 0, apart)
    worst = int(np.argmax(np.where(wrong, np.uint64(2**63), distance))) if a.size else 0
    example = ""
    if wrong.any() or distance.any():
        at = ", ".join(f"{x.ravel()[worst]!r}" for x in args)
        example = f"({at}): {a.ravel()[worst]!r} against {b.ravel()[worst]!r}"
    largest = int(distance.max()) if a.size else 0
    return Found(name, dtype, a.size, int(wrong.sum()), largest, example)


def measured(
    dtype: str, names: Iterable[str], count: int = inputs.RANDOM, width: int = WIDTH
) -> Iterator[Found]:
    """The operations of these names that take this type, some at a time."""
    chosen = [name for name in names if dtype in OPS[name].dtypes]
    for arity, pick in ((1, inputs.of_one), (2, inputs.of_two)):
        these = [name for name in chosen if OPS[name].arity == arity]
        args = tuple(inputs.rows(x, width) for x in pick(dtype, count))
        for start in range(0, len(these), TOGETHER):
            yield from _together(dtype, these[start : start + TOGETHER], args)


def _together(dtype: str, names: list[str], args: tuple[Any, ...]) -> Iterator[Found]:
    def loop(*xs: Any) -> Any:
        body = lambda c, x: (c + 1, {name: OPS[name].f(*x) for name in names})
        return onescan.scan(body, jnp.int32(0), xs)[1]

    with kernels_alone():
        native = run("native", loop, *args)
        for name in names:
            eager = OPS[name].f(*map(jnp.asarray, args))
            yield compared(
                name, dtype, args, np.asarray(native[name]), np.asarray(eager)
            )


def names() -> list[str]:
    return sorted(OPS)
