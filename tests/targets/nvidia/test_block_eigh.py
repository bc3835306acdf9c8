"""Eigenvalues by a block of threads, run by threads of the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from block_runs import by_both
from jax import lax
from linalg_checks import assert_no_worse, error_of, not_orthogonal, swapped


def found_of(xs: Any, threads: int = 32, **options: Any) -> Any:
    """Vectors and values of matrices, by a kernel and by LAPACK."""
    options = {"symmetrize_input": False, **options}
    f = lambda c, x: (0.5 * c, lax.linalg.eigh(x + c, **options))
    with jax.enable_x64(xs.dtype == np.float64):
        ours, stock = by_both(f, jnp.zeros_like(xs[0]), xs, threads)
    return ours[1:], stock[1:]


def errors(found: Any, wanted: Any) -> Any:
    vectors, values = (np.float64(x) for x in found)
    assert (np.diff(values) >= 0).all()
    made = vectors * values[..., None, :] @ swapped(vectors)
    return np.maximum(error_of(made, wanted), not_orthogonal(vectors))


def symmetric(*shape: int, dtype: Any = np.float32) -> Any:
    x = np.random.default_rng(0).normal(size=shape)
    return ((x + swapped(x)) / 2).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(9, 9), (16, 16), (21, 21), (2, 10, 10)])
def test_errors_are_as_small_as_lapack_s(shape: tuple[int, ...], dtype: Any) -> None:
    xs = symmetric(3, *shape, dtype=dtype)
    scales = np.logspace(0, -5, shape[-1]).astype(dtype)
    xs[1] *= scales * scales[:, None]  # graded
    ours, stock = found_of(xs)
    assert_no_worse(errors(ours, xs), errors(stock, xs), dtype)
    sizes = np.abs(stock[1]).max(-1, keepdims=True)
    np.testing.assert_allclose(
        ours[1] / sizes, stock[1] / sizes, 0, 20 * np.finfo(dtype).eps
    )


def test_several_warps() -> None:
    xs = symmetric(1, 18, 18)
    ours, stock = found_of(xs, 96)
    assert_no_worse(errors(ours, xs), errors(stock, xs), np.float32)


def test_one_triangle_is_read() -> None:
    xs = np.random.default_rng(0).normal(size=(1, 9, 9)).astype(np.float32)
    for lower in (False, True):
        whole = np.tril(xs) if lower else np.triu(xs)
        whole = whole + swapped(whole) - whole * np.eye(9, dtype=np.float32)
        ours, _ = found_of(xs, lower=lower)
        assert errors(ours, whole).max() < 1e-6


def special(n: int) -> dict[str, Any]:
    some = symmetric(n, n)
    one = np.ones((n, n))
    few = np.repeat([1.0, 2.0], [n // 2, n - n // 2])
    turned = np.linalg.qr(some)[0]
    return {
        "zero": 0 * one,
        "one": np.eye(n),
        "of rank one": one,
        "opposite": np.diag((-1.0) ** np.arange(n)),
        "repeated": turned * few @ turned.T,
        "huge": 1e30 * some,
        "tiny": 1e-30 * some,
    }


@pytest.mark.parametrize("n", [9, 12])
def test_special_matrices(n: int) -> None:
    xs = np.stack(list(special(n).values())).astype(np.float32)
    (vectors, values), (_, wanted) = found_of(xs)
    assert not_orthogonal(np.float64(vectors)).max() < 2e-6
    sizes = np.maximum(np.abs(xs).max((1, 2)), 1e-35)[:, None]
    np.testing.assert_allclose(values / sizes, wanted / sizes, 0, 1e-5)
    made = np.float64(vectors) * values[:, None] @ swapped(vectors)
    assert (np.abs(made - xs).max((1, 2)) <= 1e-5 * sizes[:, 0]).all()


def test_what_is_not_finite_has_nan() -> None:
    good = symmetric(9, 9)
    nan, inf = good.copy(), good.copy()
    nan[7, 2], inf[3, 3] = np.nan, np.inf
    (vectors, values), _ = found_of(np.stack([good, nan, inf, good]))
    for x in (vectors, values):
        assert np.isfinite(x[[0, 3]]).all()
        assert np.isnan(x[[1, 2]]).all()
