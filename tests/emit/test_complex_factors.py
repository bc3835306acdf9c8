"""Unitary factors of complex matrices in a body: as good as those of LAPACK."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import kernels_alone
from gpu_lowering import launches_of
from jax import lax
from linalg_checks import in_a_body

import onescan

DTYPES = ["complex64", "complex128"]


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


def numbers(*shape: int, dtype: str = "complex64", seed: int = 0) -> Any:
    parts = np.random.default_rng(seed).normal(size=(2, *shape))
    return jnp.asarray((parts[0] + 1j * parts[1]).astype(dtype))


def assert_same(f: Any, x: Any, unit: float = 100) -> None:
    """Not up to phases: the same numbers as those of LAPACK."""
    ours = in_a_body(f, x, wide=np.complex128)
    limit = unit * np.finfo(x.dtype).eps
    for a, b in zip(*map(jax.tree.leaves, (ours, f(x))), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=limit)


def hermitian(x: Any) -> Any:
    return (x + jnp.swapaxes(x.conj(), -1, -2)) / 2


def of_eigenvalues(x: Any, **options: Any) -> Any:
    """Eigenvalues, and a function of the matrix: vectors have any phase."""
    vectors, values = lax.linalg.eigh(x, **options)
    return values, _joined(vectors, jnp.tanh(values))


def _joined(vectors: Any, values: Any) -> Any:
    turned = jnp.swapaxes(vectors.conj(), -1, -2)
    return (vectors * values[..., None, :].astype(vectors.dtype)) @ turned


def of_singular_values(x: Any, full: bool = False) -> Any:
    """Singular values, the matrix, and that sides are unitary: they have any phases."""
    left, values, right = lax.linalg.svd(x, full_matrices=full)
    n = values.shape[-1]
    made = (left[..., :n] * values[..., None, :].astype(x.dtype)) @ right[..., :n, :]
    adjoint = lambda y: jnp.swapaxes(y.conj(), -1, -2)
    return values, made, adjoint(left) @ left, right @ adjoint(right)


def packed_and_back(x: Any) -> Any:
    packed, scales = jnp.linalg.qr(x, mode="raw")
    n = x.shape[-2]
    one = jnp.broadcast_to(jnp.eye(n, dtype=x.dtype), (*x.shape[:-2], n, n))
    products = [
        lax.linalg.ormqr(packed.mT, scales, one, transpose=transposed)
        for transposed in (False, True)
    ]
    return packed, scales, products


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 2), (2, 7), (18, 6, 4)])
def test_qr_has_lapack_s_phases(shape: tuple[int, ...], dtype: str) -> None:
    def f(x: Any) -> Any:
        whole = jnp.linalg.qr(x, mode="complete")
        return jnp.linalg.qr(x), whole, packed_and_back(x)

    assert_same(f, numbers(*shape, dtype=dtype))


def test_products_of_reflections() -> None:
    def f(x: Any) -> Any:
        packed, scales = jnp.linalg.qr(x, mode="raw")
        return lax.linalg.householder_product(packed.mT, scales)

    assert_same(f, numbers(5, 3))


SPECIAL = {
    "zero": np.zeros((3, 3)),
    "one": np.eye(3),
    "triangular": np.triu(np.ones((3, 3))) * (1 + 0j),
    "imaginary": 1j * np.eye(3),
    "column of zeros": np.array([[0, 1, 2j], [0, 1j, 1], [0, 3, 1]]),
    "same": (1 - 1j) * np.ones((3, 3)),
    "huge": 1e35 * np.array([[1, 1j, 0], [1, 2, 1j], [0, 1, 1]]),
    "tiny": 1e-32 * np.array([[1, 1j, 0], [1, 2, 1j], [0, 1, 1]]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (18, 3, 3), (9, 17, 17)])
def test_functions_of_hermitian_matrices(shape: tuple[int, ...], dtype: str) -> None:
    assert_same(of_eigenvalues, numbers(*shape, dtype=dtype))


@pytest.mark.parametrize("lower", [False, True])
def test_only_one_triangle_is_read(lower: bool) -> None:
    f = lambda x: of_eigenvalues(x, lower=lower, symmetrize_input=False)
    assert_same(f, numbers(4, 4))


def turned(vectors: Any) -> Any:
    return np.swapaxes(vectors.conj(), -1, -2)


@pytest.mark.parametrize("values", [[1, 1, 1, 2, 2], [0, 0, 0, 0, 3], [-1, 1] * 3])
def test_values_that_are_there_twice(values: list[float]) -> None:
    n = len(values)
    q = np.linalg.qr(np.asarray(numbers(9, n, n, dtype="complex128")))[0]
    whole = (q * np.array(values)) @ turned(q)
    whole = (whole + turned(whole)) / 2
    vectors, found = in_a_body(lax.linalg.eigh, jnp.asarray(whole), wide=None)
    np.testing.assert_allclose(found, np.sort(values)[None].repeat(9, 0), atol=1e-14)
    made = vectors * found[:, None] @ turned(vectors)
    np.testing.assert_allclose(made, whole, atol=1e-14)
    one = np.broadcast_to(np.eye(n), whole.shape)
    np.testing.assert_allclose(turned(vectors) @ vectors, one, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 3), (5, 2), (2, 7), (1, 3), (18, 6, 4), (9, 4, 17)]
)
def test_singular_values(shape: tuple[int, ...], dtype: str) -> None:
    def f(x: Any) -> Any:
        alone = lax.linalg.svd(x, compute_uv=False)
        return alone, *(of_singular_values(x, full) for full in (False, True))

    assert_same(f, numbers(*shape, dtype=dtype))


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 2)])
def test_matrices_of_nothing(shape: tuple[int, int]) -> None:
    def f(x: Any) -> Any:
        sides = of_singular_values(x, full=True)
        whole = jnp.linalg.qr(x, mode="complete") if shape[1] else ()
        return sides, whole, of_eigenvalues(x[:0, :0])

    def step(c: Any, x: Any) -> Any:
        return c + 1, (c, f(x))

    run = lambda xs: onescan.scan(step, 1j, xs)[1]
    xs = jnp.zeros((2, *shape), np.complex64)
    with onescan.engine("native"):
        ours = jax.jit(run)(xs)
    with onescan.engine("xla"):
        theirs = jax.jit(run)(xs)
    for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_singular_values_of_special_matrices() -> None:
    """Side by side, of less than full rank and of any size."""
    given = jnp.asarray(np.stack(list(SPECIAL.values())), np.complex64)
    left, values, right = in_a_body(lax.linalg.svd, given, wide=np.complex128)
    size = np.maximum(np.abs(given).max((1, 2), keepdims=True), 1e-37)
    assert (np.diff(values.real) <= 0).all()
    made = left * (values[:, None].real / size) @ right
    np.testing.assert_allclose(made, np.asarray(given) / size, atol=2e-6)
    one = np.broadcast_to(np.eye(3), given.shape)
    for side in (left, turned(right)):
        np.testing.assert_allclose(turned(side) @ side, one, atol=1e-6)


def test_special_hermitian_matrices() -> None:
    """In lanes, side by side, which end after different numbers of sweeps."""
    whole = np.stack([(x + turned(x)) / 2 for x in SPECIAL.values()])
    given = jnp.asarray(whole, np.complex64)
    vectors, values = in_a_body(lax.linalg.eigh, given, wide=np.complex128)
    size = np.maximum(np.abs(whole).max((1, 2), keepdims=True), 1e-37)
    made = vectors * (values[:, None].real / size) @ turned(vectors)
    np.testing.assert_allclose(made, whole / size, atol=2e-6)
    one = np.broadcast_to(np.eye(3), whole.shape)
    np.testing.assert_allclose(turned(vectors) @ vectors, one, atol=1e-6)


@pytest.mark.parametrize("name", SPECIAL)
def test_special_matrices(name: str) -> None:
    x = jnp.asarray(SPECIAL[name], np.complex64)
    q, r = in_a_body(jnp.linalg.qr, x, wide=np.complex128)
    np.testing.assert_allclose(q.conj().T @ q, np.eye(3), atol=1e-6)
    size = max(float(np.abs(x).max()), 1e-37)
    np.testing.assert_allclose(q @ r / size, np.asarray(x) / size, atol=1e-6)
    np.testing.assert_array_equal(np.diagonal(r).imag, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, complex(0, np.nan)])
def test_what_is_not_finite_has_nan(bad: complex) -> None:
    good = numbers(2, 5, 5)
    whole = good.at[1, 3, 0].set(bad)
    q, r = in_a_body(jnp.linalg.qr, whole, wide=np.complex128)
    assert np.isfinite(q[0]).all()
    assert np.isfinite(r[0]).all()
    assert np.isnan(q[1]).all()
    assert np.isnan(r[1][np.triu_indices(5)]).all()
    f = lambda x: (lax.linalg.eigh(x, symmetrize_input=False), lax.linalg.svd(x[:, :4]))
    for found in jax.tree.leaves(in_a_body(f, whole, wide=np.complex128)):
        assert np.isfinite(found[0]).all()
        assert np.isnan(found[1]).all()


def of_inverses(c: Any) -> Any:
    n = c.shape[-1]
    a = c + 2 * jnp.eye(n, dtype=c.dtype)
    q, r = jnp.linalg.qr(a)
    sign, size = jnp.linalg.slogdet(a)
    return 0.1 * (jnp.linalg.inv(a) + q + jnp.tanh(r)) + 0.01 * sign * size


def of_hermitian(c: Any) -> Any:
    a = hermitian(c) + jnp.diag(jnp.arange(1, 4))
    values, vectors = jnp.linalg.eigh(a)
    return 0.1 * (_joined(vectors, jnp.sin(values)) + 1j * values)


def of_both_sides(c: Any) -> Any:
    left, values, right = jnp.linalg.svd(c + jnp.diag(jnp.arange(1, 4)))
    return 0.1 * (left * jnp.sin(values)) @ right


@pytest.mark.parametrize(
    "f", [of_inverses, of_hermitian, of_both_sides], ids=lambda f: f.__name__
)
def test_gradients(f: Any) -> None:
    def loss(scan: Any) -> Any:
        run = lambda x: scan(lambda c, _: (f(c), None), x, None, length=3)[0]
        return jax.jit(jax.grad(lambda x: jnp.abs(run(x)).sum(), holomorphic=False))

    x = numbers(3, 3, dtype="complex128")
    with onescan.engine("native"):
        ours = loss(onescan.scan)(x)
    np.testing.assert_allclose(ours, loss(lax.scan)(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["qr", "eigh", "svd"])
def test_large_ones_alone_are_left_to_a_library(name: str) -> None:
    step = lambda c, _: (getattr(jnp.linalg, name)(c)[1] * c, None)
    reason = f"`{name}` at .* is of a 13 x 13 matrix, which a library does as well"
    with onescan.engine("native"), pytest.raises(onescan.EngineError, match=reason):
        jax.jit(lambda c: onescan.scan(step, c, None, length=2)[0])(numbers(13, 13))


def test_code_does_not_grow_with_the_matrix() -> None:
    def size(n: int) -> int:
        def step(c: Any, _: Any) -> Any:
            return jnp.linalg.svd(jnp.linalg.qr(jnp.linalg.eigh(c)[1])[0])[0], None

        over = lambda c: onescan.scan(step, c, None, length=2)[0]
        whole = jax.ShapeDtypeStruct((1000, n, n), np.complex64)
        with onescan.engine("native"):
            (launch,) = launches_of(jax.vmap(over), whole)
        return len(str(launch))

    assert size(16) < 1.1 * size(9)


def test_the_interpreter_has_them_too() -> None:
    def step(c: Any, x: Any) -> Any:
        x = x + c
        sides = of_eigenvalues(x[:3]), of_singular_values(x)
        return 0.5 * c, (jnp.linalg.qr(x), packed_and_back(x), *sides)

    run = lambda xs: onescan.scan(step, jnp.complex64(1), xs)[1]
    xs = numbers(2, 4, 3)
    with onescan.engine("interpreter"):
        ours = jax.jit(run)(xs)
    with onescan.engine("xla"):
        theirs = jax.jit(run)(xs)
    for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
