"""Powers whose exponent is a known number of halves: by products and a root."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import run
from jax import lax

import onescan
from onescan.emit import elementwise

EXPONENTS = [n / 2 for n in range(-8, 9)]
EDGES = np.array(
    [0.0, -0.0, 1, -1, 2, -2, 0.5, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1.2e-38],
    np.float32,
)
TINY = float(np.finfo(np.float32).tiny)


def powers(exponent: float, xs: np.ndarray) -> np.ndarray:
    """Powers of what was carried, so that they are made in the kernel."""

    def body(c: Any, x: Any) -> Any:
        return x, lax.pow(c, xs.dtype.type(exponent))

    rows = jnp.stack([jnp.asarray(xs)] * 2)
    loop = lambda init, xs: onescan.scan(body, init, xs)
    return np.asarray(run("native", loop, rows[0], rows)[1][1])


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_exactly_rounded(exponent: float) -> None:
    rng = np.random.default_rng(0)
    some = np.exp(rng.uniform(-60, 60, 5000)).astype(np.float32)
    xs = np.concatenate([EDGES, some, -some[:100]])
    with np.errstate(all="ignore"):
        # an array of exponents, or NumPy would take roots by itself
        true = np.power(xs.astype(np.float64), np.full(xs.shape, exponent))
        single = true.astype(np.float32)
    found = powers(exponent, xs)
    small = np.abs(true) < TINY  # where processors differ
    assert np.all((found == single) | (np.isnan(found) & np.isnan(true)) | small)
    zeros = single == 0
    assert np.array_equal(np.signbit(found[zeros]), np.signbit(single[zeros]))


@pytest.mark.parametrize("exponent", [-1.5, 2.5])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types(exponent: float, dtype: str) -> None:
    xs = np.linspace(0.5, 4, 24).astype(jnp.dtype(dtype))
    true = np.power(xs.astype(np.float64), exponent)
    with jax.enable_x64(True):
        found = powers(exponent, xs).astype(np.float64)
    assert np.allclose(found, true, rtol=float(jnp.finfo(dtype).eps))


def test_they_are_no_logarithms() -> None:
    """Other exponents are, and these are not."""
    logarithms = mock.Mock(side_effect=elementwise.shared.apply)
    with mock.patch.object(elementwise.shared, "apply", logarithms):
        powers(-1.5, EDGES)
        assert not logarithms.called
        powers(-1.3, EDGES)
        assert logarithms.called
