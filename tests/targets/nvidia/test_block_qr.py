"""QR by a block of threads, run by threads of the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from block_runs import by_both
from jax import lax
from linalg_checks import assert_no_worse, error_of, not_orthogonal


def matrices(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def agree(step: Any, carry: Any, xs: Any, threads: int = 32) -> None:
    for ours, stock in zip(*by_both(step, carry, xs, threads), strict=True):
        np.testing.assert_allclose(ours, stock, 1e-4, 1e-4)


SHAPES = [(9, 9), (16, 16), (33, 33), (12, 5), (5, 12), (10, 33), (2, 12, 12)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("full", [False, True])
def test_factors(shape: tuple[int, ...], full: bool) -> None:
    """Signs and all, they are those of LAPACK."""

    def step(c: Any, x: Any) -> Any:
        q, r = lax.linalg.qr(x + 0.1 * c, full_matrices=full)
        return c + (q @ r), (q, r)

    agree(step, jnp.zeros(shape), matrices(2, *shape))


@pytest.mark.parametrize("threads", [64, 128])
def test_several_warps(threads: int) -> None:
    def step(c: Any, x: Any) -> Any:
        q, r = lax.linalg.qr(x + 0.1 * c)
        return q, r

    agree(step, jnp.zeros((17, 17)), matrices(2, 17, 17), threads)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_are_as_small_as_lapack_s(dtype: Any) -> None:
    n, count = 24, 6
    left, right = (np.linalg.qr(matrices(count, n, n, dtype=np.float64))[0],) * 2
    scales = np.logspace(0, -5, count)[:, None] ** np.linspace(0, 1, n)
    xs = (left * scales[:, None] @ right).astype(dtype)
    xs[0, :, 3] = xs[0, :, 2]  # of less than full rank
    f = lambda c, x: (0.5 * c, lax.linalg.qr(x + c))
    with jax.enable_x64(dtype == np.float64):
        found = by_both(f, jnp.zeros((n, n), dtype), xs)
    errors = []
    for _, q, r in found:
        made = np.float64(q) @ np.float64(r)
        errors.append(np.maximum(error_of(made, xs), not_orthogonal(np.float64(q))))
    assert_no_worse(*errors, dtype)


def test_special_columns() -> None:
    """Of zeros, of numbers whose squares are none, and of NaN."""
    zero, huge, tiny, nan = (matrices(9, 9) for _ in range(4))
    zero[:, 2] = 0
    zero[1:, 0] = 0
    huge[:, 1] *= 1e30
    huge[:, 3] *= 1e-30
    tiny *= 1e-38
    nan[4, 4] = np.nan
    f = lambda c, x: (0.5 * c, lax.linalg.qr(x + c))
    found = by_both(f, jnp.zeros((9, 9)), np.stack([zero, huge, tiny, nan]))
    (_, q, r), (_, stock_q, stock_r) = found
    np.testing.assert_allclose(q[:2], stock_q[:2], 1e-4, 1e-4)
    np.testing.assert_allclose(r[:2] / 1e30, stock_r[:2] / 1e30, 1e-4, 1e-5)
    np.testing.assert_allclose(q[2] @ (r[2] * 1e38), tiny * 1e38, 1e-3, 1e-3)
    assert not_orthogonal(q[:3]).max() < 1e-5
    assert np.isnan(q[3]).any()
    assert np.isnan(r[3]).any()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("shape", [(9, 9), (12, 5), (2, 12, 12)])
def test_packed_reflections(shape: tuple[int, ...], transpose: bool) -> None:
    def step(c: Any, x: Any) -> Any:
        packed, scales = jnp.linalg.qr(x + 0.1 * c, mode="raw")
        packed = jnp.swapaxes(packed, -1, -2)
        made = lax.linalg.ormqr(packed, scales, x[..., :3], transpose=transpose)
        return c + x, (packed, scales, made)

    agree(step, jnp.zeros(shape), matrices(2, *shape))
