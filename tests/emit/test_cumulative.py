"""Cumulative operations by vectors along rows."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from engines import assert_engines_agree, run, without_passes
from jax import lax

from onescan.emit import cumulative as rules

NAMES = ("cumsum", "cumprod", "cummax", "cummin")
WHOLE = ("int8", "uint8", "int32", "uint32", "int64")
LENGTHS = (4, 5, 15, 16, 31, 33, 70)


@pytest.fixture
def by_vectors() -> Any:
    """How often the rule that is tested was used, in the loop."""
    seen = mock.Mock(side_effect=rules._by_vectors)
    counted = mock.patch.object(rules, "_by_vectors", seen)
    with jax.enable_x64(True), without_passes(), counted:
        yield seen


def both_ways(name: str, x: Any, axis: int = 0) -> Any:
    f = getattr(lax, name)
    return f(x, axis=axis), f(x, axis=axis, reverse=True)


def in_a_loop(name: str, *groups: Any) -> Any:
    step = lambda c, xs: (c, [both_ways(name, x) for x in xs])
    return lax.scan(step, 0, groups)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers(name: str, dtype: str, by_vectors: Any) -> None:
    """Sums and products past the largest number go on from the smallest."""
    limits = np.iinfo(dtype)
    draws = np.random.default_rng(0)
    make = partial(draws.integers, limits.min, limits.max, dtype=dtype)
    rows = [make((3, n), endpoint=True) for n in LENGTHS]
    assert_engines_agree(partial(in_a_loop, name), *rows)
    assert by_vectors.call_count == 2 * len(LENGTHS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats(name: str, dtype: str, by_vectors: Any) -> None:
    draws = np.random.default_rng(1)
    rows = [draws.uniform(0.5, 1.5, (3, n)).astype(dtype) for n in LENGTHS]
    assert_engines_agree(partial(in_a_loop, name), *rows, ulps=64)
    assert by_vectors.called == (name != "cumprod")


def test_factors_whose_product_is_too_large(by_vectors: Any) -> None:
    """Wrong results, found by a tester: inf, and nan behind it."""
    xs = np.tile(np.array([1e-30, 1e30, 1e30, 1e-30], "float32"), (3, 4))
    native = run("native", lambda xs: in_a_loop("cumprod", xs)[1][0][0], xs)
    np.testing.assert_allclose(native, np.cumprod(xs, 1), 1e-5)
    assert not by_vectors.called


@pytest.mark.parametrize("name", ["cummax", "cummin", "cumsum"])
def test_zeros_infinities_and_nan(name: str, by_vectors: Any) -> None:
    special = np.float32([-0.0, 0.0, np.inf, -np.inf, np.nan, 1.0])
    rows = special[np.random.default_rng(2).integers(0, 6, (20, 18))]
    rows[0], rows[1, :] = -0.0, -np.inf
    rows[2:8] = np.where(np.isnan(rows[2:8]), -0.0, rows[2:8])
    assert_engines_agree(partial(in_a_loop, name), rows)
    assert by_vectors.called


@pytest.mark.parametrize("shape", [(3, 40), (40, 3), (2, 5, 9)])
def test_of_several_rows(shape: tuple[int, ...], by_vectors: Any) -> None:
    xs = np.random.default_rng(3).integers(-9, 9, (4, *shape))

    def step(c: Any, x: Any) -> Any:
        return c, [both_ways(name, x, k) for name in NAMES for k in range(x.ndim)]

    assert_engines_agree(lambda xs: lax.scan(step, 0, xs), xs)
    assert by_vectors.called


def test_half_precision_goes_from_one_to_the_next(by_vectors: Any) -> None:
    """Each sum is rounded: no other order gives the same."""
    xs = np.random.default_rng(4).uniform(0, 1, (3, 33)).astype("float16")
    xs[1] = -0.0
    assert_engines_agree(partial(in_a_loop, "cummax"), xs)
    assert_engines_agree(partial(in_a_loop, "cumsum"), xs[1:2])
    assert not by_vectors.called


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [4, 7, 33])
def test_of_a_number_that_is_spread(name: str, size: int) -> None:
    """A failure inside, found by a tester: one number is no vector yet."""

    def step(c: Any, x: Any) -> Any:
        c = 0.5 * c + x
        return c, both_ways(name, jax.numpy.broadcast_to(c, (size,)))

    run = lambda xs: lax.scan(step, jax.numpy.float32(0), xs)
    assert_engines_agree(run, np.linspace(0, 1, 5, dtype="float32"), ulps=64)
