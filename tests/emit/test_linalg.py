"""Matrices in a body: as good as LAPACK, and NaN where JAX has NaN."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import kernels_alone
from gpu_lowering import launches_of
from jax import lax
from linalg_checks import (
    assert_no_worse,
    each_alone,
    error_of,
    in_a_body,
    matrices,
    swapped,
)
from sampling import pairs

import onescan


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


SIZES = [1, 2, 5, 9, 33]
DTYPES = [np.float32, np.float64]
ONE_BY_ONE = [False, True]


@pytest.mark.parametrize(("n", "dtype", "alone"), pairs(SIZES, DTYPES, ONE_BY_ONE))
def test_cholesky_is_as_good_as_lapack(n: int, dtype: Any, alone: bool) -> None:
    left, scales, _ = matrices(n, dtype)
    whole = (left * scales[:, None] @ swapped(left)).astype(dtype)
    whole = (whole + swapped(whole)) / 2
    ours, theirs = each_alone(lax.linalg.cholesky, alone, jnp.asarray(whole))
    wanted = whole[-1] if alone else whole
    errors = [error_of(x @ swapped(x), wanted) for x in (ours, theirs)]
    assert_no_worse(*errors, dtype)


@pytest.mark.parametrize(("n", "dtype", "alone"), pairs(SIZES, DTYPES, ONE_BY_ONE))
def test_lu_is_as_good_as_lapack(n: int, dtype: Any, alone: bool) -> None:
    left, scales, right = matrices(n, dtype)
    whole = (left * scales[:, None] @ right).astype(dtype)
    wanted = whole[-1] if alone else whole

    def error(found: Any) -> Any:
        factors, _, order = found
        lower = np.tril(factors, -1) + np.eye(n)
        assert np.abs(lower).max() <= 1 + 1e-6, "the largest element is the pivot"
        rows = np.take_along_axis(wanted, np.int64(order)[..., None], -2)
        return error_of(lower @ np.triu(factors), rows)

    found = each_alone(lax.linalg.lu, alone, jnp.asarray(whole))
    assert_no_worse(*map(error, found), dtype)


@pytest.mark.parametrize(("n", "dtype", "alone"), pairs(SIZES, DTYPES, ONE_BY_ONE))
def test_solutions_are_as_good_as_lapack_s(n: int, dtype: Any, alone: bool) -> None:
    left, scales, right = matrices(n, dtype)
    a = (left * scales[:, None] @ right).astype(dtype)
    b = np.random.default_rng(0).normal(size=(*a.shape[:-1], 3)).astype(dtype)

    def error(x: Any) -> Any:
        matrix, sides = (v[-1] if alone else v for v in (a, b))
        left_over = np.linalg.norm(matrix @ x - sides, axis=(-2, -1))
        size = np.linalg.norm(matrix, axis=(-2, -1)) * np.linalg.norm(x, axis=(-2, -1))
        return left_over / size

    found = each_alone(jnp.linalg.solve, alone, *map(jnp.asarray, (a, b)))
    assert_no_worse(*map(error, found), dtype)


@pytest.mark.parametrize(("n", "dtype", "alone"), pairs([1, 4, 11], DTYPES, ONE_BY_ONE))
def test_qr_is_as_good_as_lapack(n: int, dtype: Any, alone: bool) -> None:
    left, scales, right = matrices(n, dtype)
    whole = (left * scales[:, None] @ right).astype(dtype)
    wanted = whole[-1] if alone else whole

    def error(found: Any) -> Any:
        q, r = found
        turned = error_of(swapped(q) @ q, np.broadcast_to(np.eye(n), q.shape))
        return np.maximum(error_of(q @ r, wanted), turned)

    found = each_alone(jnp.linalg.qr, alone, jnp.asarray(whole))
    assert_no_worse(*map(error, found), dtype)


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (9, 4)])
@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("batch", [(), (20,)])
def test_packed_reflections(
    shape: tuple[int, int], engine: str, batch: tuple[int, ...]
) -> None:
    """Least squares as Lineax solves them, and the way back."""
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(*batch, *shape)).astype("float32")
    vectors = rng.normal(size=(*batch, 3, shape[0])).astype("float32")

    def one(scan: Any) -> Any:
        def run(matrix: Any, xs: Any) -> Any:
            def step(c: Any, x: Any) -> Any:
                packed, scales = jnp.linalg.qr(matrix + c, mode="raw")
                product = partial(lax.linalg.ormqr, packed.mT, scales)
                turned = product(x[:, None], transpose=True)
                return 0.1 * c + 0.1, (turned, product(turned), packed, scales)

            return scan(step, jnp.float32(0), xs)[1]

        for _ in batch:
            run = jax.vmap(run)
        return jax.jit(run)

    with onescan.engine(engine):
        ours = one(onescan.scan)(whole, vectors)
    stock = one(lax.scan)(whole, vectors)
    for x, y in zip(ours, stock, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(ours[1][..., 0], vectors, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("n", [3, 12])
def test_nan_where_jax_has_nan(n: int) -> None:
    good = np.eye(n, dtype=np.float32)
    below, negative, zero, inf = (good.copy() for _ in range(4))
    below[-1, 0] = np.nan
    negative[n // 2, n // 2] = -1
    zero[0, 0] = 0
    inf[1, 0] = inf[0, 1] = np.inf
    whole = jnp.asarray(np.stack([good, below, negative, zero, inf, 2 * good]))
    factor = lambda x: lax.linalg.cholesky(x, symmetrize_input=False)
    wanted = np.asarray(jax.jit(factor)(whole), np.float64)
    assert np.isnan(wanted).any((1, 2)).sum() == 4
    np.testing.assert_array_equal(in_a_body(factor, whole), wanted)
    for k in range(len(whole)):
        np.testing.assert_array_equal(in_a_body(factor, whole[k]), wanted[k])


def test_a_matrix_that_is_too_large_is_left_to_a_library() -> None:
    def step(c: Any, _: Any) -> Any:
        return jnp.linalg.cholesky(c + jnp.eye(65)), None

    jax.jit(lambda c: onescan.scan(step, c, None, length=2)[0])(jnp.eye(65))
    row = onescan.report().rows[-1]
    assert row.engine == "xla"
    assert "is of a 65 x 65 matrix, which a library does as well" in str(row.reason)


def test_code_does_not_grow_with_the_matrix() -> None:
    def instructions(n: int) -> int:
        factor = lambda x: lax.linalg.lu(x)[0]
        step = lambda c, _: (factor(c), None)
        shown = onescan.explain(step, jnp.eye(n), length=2).stages()
        return len(str(shown))

    assert instructions(60) < 1.1 * instructions(30)


@pytest.mark.parametrize(("lanes", "n"), [(1000, 4), (1000, 12), (1, 4), (1, 12)])
def test_a_gpu_has_them_too(lanes: int, n: int) -> None:
    def f(a: Any, b: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            factor = lax.linalg.cholesky(a + 0.1 * c @ c.T)
            solved = lax.linalg.triangular_solve(factor, b, left_side=True, lower=True)
            return jnp.linalg.solve(a, solved), None

        return onescan.scan(step, b, None, length=3)[0]

    spread = jax.ShapeDtypeStruct((lanes, n, n), np.float32)
    assert len(launches_of(jax.vmap(f), spread, spread)) == 1


@pytest.mark.parametrize("n", [16, 64])
def test_one_matrix_is_enough_for_a_gpu(n: int) -> None:
    """The threads of a block share it."""

    def f(a: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            q, r = jnp.linalg.qr(a + 0.1 * c)
            return q + r, None

        return onescan.scan(step, a, None, length=3)[0]

    (launch,) = launches_of(f, jax.ShapeDtypeStruct((n, n), np.float32))
    assert "shfl" in launch.code


def test_packed_reflections_on_gpus() -> None:
    def f(matrix: Any, x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            packed, scales = jnp.linalg.qr(matrix, mode="raw")
            return lax.linalg.ormqr(packed.mT, scales, c, transpose=True), None

        return onescan.scan(step, x, None, length=3)[0]

    types = [jax.ShapeDtypeStruct((64, 5, n), np.float32) for n in (3, 1)]
    assert len(launches_of(jax.vmap(f), *types)) == 1
