"""Eigenvalues and singular values in a body: as good as those of LAPACK."""

from __future__ import annotations

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
    not_orthogonal,
    swapped,
)
from sampling import pairs

import onescan


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


DTYPES = [np.float32, np.float64]
ONE_BY_ONE = [False, True]


@pytest.mark.parametrize(
    ("n", "dtype", "alone"), pairs([1, 2, 4, 7], DTYPES, ONE_BY_ONE)
)
def test_eigenvalues_are_as_good_as_lapack_s(n: int, dtype: Any, alone: bool) -> None:
    left, scales, _ = matrices(n, dtype)
    whole = left * (scales * (-1.0) ** np.arange(n))[:, None] @ swapped(left)
    whole[::3] = np.random.default_rng(0).normal(size=whole[::3].shape)
    whole = (whole + swapped(whole)).astype(dtype) / 2
    wanted = whole[-1] if alone else whole

    def errors(found: Any) -> Any:
        vectors, values = found
        assert (np.diff(values) >= 0).all()
        made = vectors * values[..., None, :] @ swapped(vectors)
        return np.maximum(error_of(made, wanted), not_orthogonal(vectors))

    found = each_alone(lax.linalg.eigh, alone, jnp.asarray(whole))
    assert_no_worse(*map(errors, found), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_matrices_in_lanes(dtype: Any) -> None:
    """Loops over memory, for matrices that are too large to be written out."""
    n = 19
    left, scales, right = matrices(n, dtype)
    whole = jnp.asarray(left * scales[:, None] @ right, dtype)

    def both(x: Any) -> Any:
        return lax.linalg.eigh(x), lax.linalg.svd(x)

    def errors(found: Any) -> Any:
        (vectors, values), (u, s, vt) = found
        made = vectors * values[..., None, :] @ swapped(vectors)
        symmetric = (whole + swapped(whole)) / 2
        parts = [error_of(made, symmetric), error_of(u * s[..., None, :] @ vt, whole)]
        parts += [not_orthogonal(x) for x in (vectors, u, swapped(vt))]
        return np.max(parts, axis=0)

    found = each_alone(both, False, whole)
    assert_no_worse(*map(errors, found), dtype)


def test_the_largest_matrices_are_of_fewer_lanes() -> None:
    """Those of a whole vector would be more than a step may hold."""
    x = np.random.default_rng(0).normal(size=(16, 56, 56)).astype(np.float32)
    _, values = in_a_body(lax.linalg.eigh, jnp.asarray(x))
    exact = np.linalg.eigvalsh((np.float64(x) + swapped(x)) / 2)
    np.testing.assert_allclose(values, exact, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "full", "dtype", "alone"),
    pairs([(1, 1), (3, 3), (4, 2), (3, 8), (7, 5)], [False, True], DTYPES, ONE_BY_ONE),
)
def test_singular_values_are_as_good_as_lapack_s(
    shape: tuple[int, int], full: bool, dtype: Any, alone: bool
) -> None:
    rows, columns = shape
    left, scales, right = matrices(max(shape), dtype)
    whole = (left * scales[:, None] @ right)[:, :rows, :columns]
    whole[::3] = np.random.default_rng(0).normal(size=whole[::3].shape)
    whole[1] = 1  # of rank one
    whole[2, 1:, 0] = 0
    whole = whole.astype(dtype)
    wanted = whole[-1] if alone else whole
    n = min(shape)

    def errors(found: Any) -> Any:
        left, values, right = found
        assert left.shape[-1] == (rows if full else n)
        assert right.shape[-2] == (columns if full else n)
        assert (np.diff(values) <= 0).all()
        assert (values >= 0).all()
        made = left[..., :n] * values[..., None, :] @ right[..., :n, :]
        parts = [error_of(made, wanted)]
        parts += [not_orthogonal(left), not_orthogonal(swapped(right))]
        return np.max(parts, axis=0)

    f = lambda x: lax.linalg.svd(x, full_matrices=full)
    found = each_alone(f, alone, jnp.asarray(whole))
    assert_no_worse(*map(errors, found), dtype)


SPECIAL = {
    "zero": np.zeros((3, 3)),
    "one": np.eye(3),
    "same": np.ones((3, 3)),
    "opposite": np.diag([1.0, -1.0, 1.0]),
    "huge": 1e30 * np.diag([1.0, 2.0, 4.0]),
    "tiny": 1e-30 * (np.ones((3, 3)) + np.diag([1.0, 2.0, 4.0])),
    "graded": np.diag([1e-30, 1.0, 1e-12]) + 1e-20 * np.ones((3, 3)),
    "small": 1e-8 * np.array([[1.0, 0, 0], [0, 1e-4, 1e-4], [0, 1e-4, 1e-4]]),
}


def test_special_matrices() -> None:
    """In lanes, side by side, which end after different numbers of sweeps."""
    whole = jnp.asarray(np.stack(list(SPECIAL.values())), np.float32)
    (vectors, values), (u, s, vt) = in_a_body(
        lambda x: (lax.linalg.eigh(x), lax.linalg.svd(x)), whole
    )
    for x in (vectors, u, swapped(vt)):
        assert not_orthogonal(x).max() < 1e-6
    exact, size = np.float64(whole), np.abs(np.float64(whole)).max((-1, -2))
    wanted = np.linalg.eigvalsh(exact), np.linalg.svd(exact, compute_uv=False)
    for ours, theirs in zip((values, s), wanted, strict=True):
        assert (np.abs(ours - theirs).max(-1) <= 1e-6 * size).all()
    made = u * s[:, None] @ vt
    assert (np.abs(made - exact).max((1, 2)) <= 1e-6 * size).all()


@pytest.mark.parametrize("n", [3, 6])
def test_what_is_not_finite_has_nan(n: int) -> None:
    good = np.ones((n, n), np.float32) + 3 * np.eye(n, dtype=np.float32)
    bad, inf = good.copy(), good.copy()
    bad[-1, 0] = np.nan
    inf[1, 1] = np.inf
    whole = jnp.asarray(np.stack([good, bad, inf, 2 * good]))
    f = lambda x: (lax.linalg.eigh(x, symmetrize_input=False), lax.linalg.svd(x))
    found = in_a_body(f, whole)
    theirs = jax.tree.map(np.asarray, f(whole[jnp.array([0, 1, 3])]))
    for ours, wanted in zip(*map(jax.tree.leaves, (found, theirs)), strict=True):
        assert np.isnan(ours[[1, 2]]).all()
        np.testing.assert_array_equal(np.isnan(ours[[0, 1, 3]]), np.isnan(wanted))


def test_gradients() -> None:
    apart = jnp.diag(jnp.arange(1, 4)).astype(np.float32)

    def loss(x: Any, use: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            values, vectors = jnp.linalg.eigh(c @ c.T + apart)
            left, sizes, right = jnp.linalg.svd(c + 2 * jnp.eye(3, dtype=c.dtype))
            turned = (vectors * jnp.log(values)) @ vectors.T
            return 0.1 * (turned + left * jnp.sqrt(sizes) @ right), None

        return use(step, x, None, length=3)[0].sum()

    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)), np.float32)
    with onescan.engine("native"):
        ours = jax.jit(jax.grad(lambda x: loss(x, onescan.scan)))(x)
    wanted = jax.jit(jax.grad(lambda x: loss(x, lax.scan)))(x)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            lambda c: lax.linalg.eigh(c)[0],
            "`eigh` at .* is of a 12 x 12 matrix, which a library does as well",
        ),
        (
            lambda c: (
                lax.linalg.svd(
                    c[:4, :4], algorithm=lax.linalg.SvdAlgorithm.QR, compute_uv=False
                )[0]
                * c
            ),
            "`svd` at .* asks for an algorithm of a library",
        ),
    ],
)
def test_reasons(body: Any, reason: str) -> None:
    step = lambda c, _: (body(c), None)
    with (
        onescan.engine("native"),
        pytest.raises(onescan.EngineError, match=reason),
    ):
        jax.jit(lambda c: onescan.scan(step, c, None, length=2)[0])(jnp.eye(12))


def test_code_does_not_grow_with_the_matrix() -> None:
    def size(n: int) -> int:
        step = lambda c, _: (jnp.linalg.svd(jnp.linalg.eigh(c)[1])[0], None)
        over = lambda c: onescan.scan(step, c, None, length=2)[0]
        whole = jax.ShapeDtypeStruct((1000, n, n), np.float32)
        with onescan.engine("native"):
            (launch,) = launches_of(jax.vmap(over), whole)
        return len(str(launch))

    assert size(16) < 1.1 * size(9)


@pytest.mark.parametrize(("lanes", "n"), [(1000, 3), (1000, 12), (1, 3), (1, 19)])
def test_a_gpu_has_them_too(lanes: int, n: int) -> None:
    def f(a: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            values, vectors = jnp.linalg.eigh(a + 0.1 * c @ c.T)
            left, sizes, right = jnp.linalg.svd(vectors * values + c)
            return left * jnp.sqrt(sizes) @ right, None

        return onescan.scan(step, a, None, length=3)[0]

    whole = jax.ShapeDtypeStruct((lanes, n, n), np.float32)
    with onescan.engine("native"):
        assert len(launches_of(jax.vmap(f), whole)) == 1
