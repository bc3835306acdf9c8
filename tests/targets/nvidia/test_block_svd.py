"""Singular values by a block of threads, run by threads of the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from block_runs import by_both
from gpu_matrices import svd_errors
from jax import lax
from linalg_checks import assert_no_worse, not_orthogonal, swapped


def found_of(xs: Any, threads: int = 32, full: bool = False) -> Any:
    """Values and both sides of matrices, by a kernel and by LAPACK."""
    f = lambda c, x: (0.5 * c, lax.linalg.svd(x + c, full_matrices=full))
    with jax.enable_x64(xs.dtype == np.float64):
        ours, stock = by_both(f, jnp.zeros_like(xs[0]), xs, threads)
    return ours[1:], stock[1:]


def errors(found: Any, wanted: Any) -> Any:
    return svd_errors([np.float64(x) for x in found], wanted)


def matrices(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


SHAPES = [(9, 9), (16, 16), (21, 13), (5, 12), (33, 4), (2, 10, 10)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("full", [False, True])
def test_errors_are_as_small_as_lapack_s(
    shape: tuple[int, ...], full: bool, dtype: Any
) -> None:
    xs = matrices(3, *shape, dtype=dtype)
    xs[1] *= np.logspace(0, -5, shape[-1]).astype(dtype)  # graded
    ours, stock = found_of(xs, full=full)
    assert_no_worse(errors(ours, xs), errors(stock, xs), dtype)
    sizes = np.abs(stock[1]).max(-1, keepdims=True)
    np.testing.assert_allclose(
        ours[1] / sizes, stock[1] / sizes, 0, 20 * np.finfo(dtype).eps
    )


def test_several_warps() -> None:
    xs = matrices(1, 18, 18)
    ours, stock = found_of(xs, 96)
    assert_no_worse(errors(ours, xs), errors(stock, xs), np.float32)


def test_values_alone() -> None:
    f = lambda c, x: (0.5 * c, lax.linalg.svd(x + c, compute_uv=False))
    xs = matrices(2, 12, 15)
    (_, ours), (_, stock) = by_both(f, jnp.zeros_like(xs[0]), xs)
    np.testing.assert_allclose(ours, stock, 1e-5, 1e-5)


def special(n: int) -> dict[str, Any]:
    some, one = matrices(n, n), np.ones((n, n))
    few = np.repeat([2.0, 1.0], [n // 2, n - n // 2])
    left, right = np.linalg.qr(some)[0], np.linalg.qr(some.T)[0]
    small = 1e-4 * np.ones((n, n))
    small[0], small[:, 0], small[0, 0] = 0, 0, 1
    return {
        "zero": 0 * one,
        "one": np.eye(n),
        "of rank one": one,
        "repeated": left * few @ right,
        "with a column of zeros": some * (np.arange(n) != 3),
        "huge": 1e30 * some,
        "tiny": 1e-30 * some,
        "small": 1e-8 * small,
    }


@pytest.mark.parametrize("n", [9, 12])
def test_special_matrices(n: int) -> None:
    xs = np.stack(list(special(n).values())).astype(np.float32)
    (left, values, right), (_, wanted, _) = found_of(xs)
    for x in (left, swapped(right)):
        assert not_orthogonal(np.float64(x)).max() < 2e-6
    sizes = np.maximum(np.abs(xs).max((1, 2)), 1e-35)[:, None]
    np.testing.assert_allclose(values / sizes, wanted / sizes, 0, 1e-5)
    made = np.float64(left) * values[:, None] @ right
    assert (np.abs(made - xs).max((1, 2)) <= 1e-5 * sizes[:, 0]).all()


def test_what_is_not_finite_has_nan() -> None:
    good = matrices(10, 9)
    nan, inf = good.copy(), good.copy()
    nan[7, 2], inf[3, 3] = np.nan, np.inf
    found, _ = found_of(np.stack([good, nan, inf, good]))
    for x in found:
        assert np.isfinite(x[[0, 3]]).all()
        assert np.isnan(x[[1, 2]]).all()
