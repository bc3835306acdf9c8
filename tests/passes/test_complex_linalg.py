"""Factors of complex matrices in a body, and what is made of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import kernels_alone, run
from jax import lax

import onescan


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


def numbers(*shape: int, dtype: Any = np.complex64) -> Any:
    parts = np.random.default_rng(0).normal(size=(2, *shape))
    return jnp.asarray((parts[0] + 1j * parts[1]).astype(dtype))


def in_a_body(f: Any, x: Any) -> Any:
    """What a kernel makes of f(x), which no pass can take out of the loop."""
    step = lambda c, _: (c + 0, f(c))
    both = run("native", lambda x: onescan.scan(step, x, None, length=2)[1], x)
    return jax.tree.map(lambda y: np.asarray(y[-1]), both)


def assert_close(f: Any, x: Any) -> None:
    unit = 500 * np.finfo(x.dtype).eps
    for ours, wanted in zip(
        jax.tree.leaves(in_a_body(f, x)), jax.tree.leaves(f(x)), strict=True
    ):
        np.testing.assert_allclose(ours, wanted, rtol=unit, atol=unit)


def definite(a: Any) -> Any:
    n = a.shape[-1]
    return a @ jnp.swapaxes(a.conj(), -1, -2) / n + jnp.eye(n, dtype=a.real.dtype)


def test_alone() -> None:
    f = lambda a: (jnp.linalg.cholesky(definite(a)), jnp.linalg.solve(a, a[:, 0] - 1j))
    assert_close(f, numbers(3, 3))


def test_in_lanes() -> None:
    f = lambda a: (lax.linalg.cholesky(definite(a)), jnp.linalg.slogdet(a))
    assert_close(f, numbers(18, 2, 2, dtype=np.complex128))


@pytest.mark.parametrize("left", [False, True])
def test_triangles(left: bool) -> None:
    def f(a: Any) -> list[Any]:
        b = a[:, :2] if left else a[:2]
        whole = a / 3 + 2 * jnp.eye(3, dtype=np.float32)
        return [
            lax.linalg.triangular_solve(
                *(whole, b),
                left_side=left,
                lower=lower,
                transpose_a=transposed,
                conjugate_a=conjugated,
                unit_diagonal=conjugated != lower,
            )
            for lower, transposed, conjugated in product((False, True), repeat=3)
        ]

    assert_close(f, numbers(3, 3))


def test_matrices_that_are_not_square_or_singular() -> None:
    def f(a: Any) -> Any:
        singular = lax.linalg.lu(a[:, :2].at[:, 1].set(0))
        return lax.linalg.lu(a[:2])[1:], singular, jnp.prod(a[:3, :3], 1)

    assert_close(f, numbers(4, 4))


def test_a_matrix_that_is_not_definite_has_nan() -> None:
    f = lambda a: lax.linalg.cholesky(-(a @ a.conj().T), symmetrize_input=False)
    assert np.isnan(np.tril(in_a_body(f, numbers(3, 3)).real)).any()


def test_a_large_one_alone_is_left_to_a_library() -> None:
    step = lambda c, _: (jnp.linalg.cholesky(c + 0), None)
    reason = "`cholesky` at .* is of a 13 x 13 matrix, which a library does as well"
    with onescan.engine("native"), pytest.raises(onescan.EngineError, match=reason):
        jax.jit(lambda c: onescan.scan(step, c, None, length=2)[0])(
            jnp.eye(13, dtype=np.complex64)
        )


def test_factors_of_nothing() -> None:
    lower, pivots, order = in_a_body(lax.linalg.lu, numbers(2, 0, 0))
    assert (lower.shape, pivots.shape, order.shape) == ((2, 0, 0), (2, 0), (2, 0))
