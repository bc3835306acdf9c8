"""Elementwise operations: how far a native loop is from eager JAX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from engine_elementwise import OPS
from engines import kernels_alone, run

import onescan
from conformance import inputs
from conformance.compared import Found, compared

#: numbers of a step: registers of every width, and some that fill none
WIDTH = 109
#: operations that are compiled together
TOGETHER = 12


def measured(
    dtype: str, names: Iterable[str], count: int = inputs.RANDOM, width: int = WIDTH
) -> Iterator[Found]:
    """The operations of these names that take this type, some at a time."""
    chosen = [name for name in names if dtype in OPS[name].dtypes]
    for arity, pick in ((1, inputs.of_one), (2, inputs.of_two)):
        these = [name for name in chosen if OPS[name].arity == arity]
        if not these:
            continue
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
            results = np.asarray(native[name]), np.asarray(eager)
            yield compared(name, dtype, args, *results, OPS[name].exact)


def names() -> list[str]:
    return sorted(OPS)
