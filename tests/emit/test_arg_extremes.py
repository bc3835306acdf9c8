"""The positions of the largest and smallest elements, by vectors along rows."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import FLOATS, INTS, assert_engines_agree, without_passes
from jax import lax

from onescan.emit import arg_extreme

LENGTHS = [4, 5, 15, 16, 33, 70, 1000]
STEPS = 8


def rows(dtype: str, n: int) -> np.ndarray:
    """Rows with ties, and each extreme everywhere, last, or alone."""
    draws = np.random.default_rng(n)
    if dtype == "bool":
        least, most, spans = False, True, 2
    elif dtype in INTS:
        least, most, spans = np.iinfo(dtype).min, np.iinfo(dtype).max, 6
    else:
        least, most, spans = -np.inf, np.inf, 6
    given = draws.integers(0, spans, (STEPS, n)).astype(jnp.dtype(dtype))
    given[0], given[1] = least, most
    given[2, -1], given[3, -1] = least, most
    if dtype in FLOATS:
        given[4, -1], given[5, [0, n // 2]], given[6] = np.nan, np.nan, np.nan
        given[7] = np.where(np.arange(n) % 2, 0.0, -0.0)
    return given


def found(x: Any, axis: int, index: str = "int32") -> Any:
    return lax.argmax(x, axis, index), lax.argmin(x, axis, index)


@pytest.fixture(autouse=True)
def _as_they_are_written() -> Any:
    """In the loop, by the rule that is tested."""
    along = mock.Mock(side_effect=arg_extreme._along_a_row)
    counted = mock.patch.object(arg_extreme, "_along_a_row", along)
    with jax.enable_x64(True), without_passes(), counted:
        yield
    assert along.called


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, "bool"])
def test_in_every_type(dtype: str) -> None:
    def together(*groups: Any) -> Any:
        step = lambda c, xs: (c, [found(x, 0) for x in xs])
        return lax.scan(step, 0, groups)

    assert_engines_agree(together, *(rows(dtype, n) for n in LENGTHS))


@pytest.mark.parametrize("index", ["uint8", "int16", "uint32", "int64"])
def test_positions_of_every_type(index: str) -> None:
    step = lambda c, x: (c, found(x, 0, index))
    assert_engines_agree(lambda xs: lax.scan(step, 0, xs), rows("float32", 200))


@pytest.mark.parametrize("shape", [(3, 40), (40, 3), (2, 5, 9), (7, 33)])
def test_of_several_rows(shape: tuple[int, ...]) -> None:
    xs = np.random.default_rng(0).integers(0, 9, (5, *shape)).astype(np.float32)

    def step(c: Any, x: Any) -> Any:
        return c, [found(x, axis) for axis in range(x.ndim)]

    assert_engines_agree(lambda xs: lax.scan(step, 0, xs), xs)


def test_of_what_is_computed() -> None:
    def step(c: Any, x: Any) -> Any:
        best = jnp.argmax(jnp.tanh(c) * x)
        return c.at[best].add(-1.0) + x / 2, (best, jnp.argmin(c * x))

    xs = np.random.default_rng(1).normal(size=(20, 37)).astype(np.float32)
    assert_engines_agree(lambda xs: lax.scan(step, xs[0], xs)[1], xs, ulps=16)
