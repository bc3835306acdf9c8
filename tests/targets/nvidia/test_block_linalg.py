"""Factors by a block of threads, run by threads of the CPU."""

from __future__ import annotations

import platform
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu_lowering import H200
from gpu_threads import by_a_warp
from jax import lax
from passing import loop_of

from onescan.targets.nvidia.target import Nvidia

TARGET = Nvidia(H200)


def results(step: Any, carry: Any, xs: Any) -> tuple[Any, Any]:
    """Of a kernel of one block of a warp, and of stock JAX."""
    loop, args = loop_of(step, carry, xs)
    return by_a_warp(TARGET, loop, args), jax.tree.leaves(lax.scan(step, carry, xs))


def matrices(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def agree(step: Any, carry: Any, xs: Any) -> None:
    for ours, stock in zip(*results(step, carry, xs), strict=True):
        np.testing.assert_allclose(ours, stock, 1e-4, 1e-4)


@pytest.mark.parametrize("shape", [(9, 9), (33, 33), (2, 12, 12)])
def test_cholesky(shape: tuple[int, ...]) -> None:
    n = shape[-1]

    def step(c: Any, x: Any) -> Any:
        spread = x @ jnp.swapaxes(x, -1, -2) / n + 2 * jnp.eye(n, dtype=x.dtype)
        factor = lax.linalg.cholesky(spread + 0 * c, symmetrize_input=False)
        return factor, factor

    agree(step, jnp.zeros(shape), matrices(3, *shape))


def test_cholesky_of_what_is_not_definite() -> None:
    """The factor is NaN as a whole; a NaN in the matrix spreads from its place."""
    good = 2 * np.eye(9, dtype=np.float32)
    negative, zero, nan = good.copy(), good.copy(), good.copy()
    negative[5, 5], zero[0, 0], nan[6, 3] = -1, 0, np.nan
    f = lambda c, x: (0.5 * c, lax.linalg.cholesky(x + c, symmetrize_input=False))
    xs = np.stack([good, negative, zero, nan])
    (_, ours), (_, stock) = results(f, jnp.zeros((9, 9)), xs)
    np.testing.assert_array_equal(np.isnan(ours[:3]), np.isnan(stock[:3]))
    assert np.isnan(ours[3]).any()
    assert np.isfinite(ours[3][:3, :3]).all()


@pytest.mark.parametrize("shape", [(9, 9), (9, 13), (12, 10), (33, 33), (2, 12, 12)])
def test_lu(shape: tuple[int, ...]) -> None:
    def step(c: Any, x: Any) -> Any:
        factors, pivots, order = lax.linalg.lu(x + 0.1 * c)
        return factors, (factors, pivots, order)

    agree(step, jnp.zeros(shape), matrices(3, *shape))


def test_pivots_of_ties_zeros_and_nan() -> None:
    """The first of equal ones; a column of zeros stays; so does NaN on the diagonal."""
    some = matrices(9, 9)
    tie, zero, nan = some.copy(), some.copy(), some.copy()
    tie[:, 0], zero[:, 2], nan[1, 1] = [1, -1] * 4 + [1], 0, np.nan
    f = lambda c, x: (0.5 * c, lax.linalg.lu(x + c))
    found = results(f, jnp.zeros((9, 9)), np.stack([tie, zero, nan]))
    for ours, stock in zip(*found, strict=True):
        np.testing.assert_allclose(ours[:2], stock[:2], 1e-4, 1e-4)
    (_, _, ours, _), (_, _, stock, _) = found
    # what stands in a column with a NaN is chosen by the processor's library
    known = 2 if platform.machine() == "x86_64" else 1
    np.testing.assert_array_equal(ours[2, :known], stock[2, :known])


def test_solve() -> None:
    def step(c: Any, x: Any) -> Any:
        c = jnp.linalg.solve(x + 4 * jnp.eye(12, dtype=x.dtype), c) + 0.5 * c
        return c, c.sum()

    agree(step, matrices(12), matrices(4, 12, 12))
