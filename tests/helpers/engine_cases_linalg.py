"""Factors of matrices and solutions with them: a table of small functions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from engine_cases import Case, D, F, I, case
from jax import lax


def definite(x: Any) -> Any:
    n = x.shape[-1]
    return x @ jnp.swapaxes(x, -1, -2) / n + jnp.eye(n, dtype=x.dtype)


def dominant(x: Any) -> Any:
    """A matrix with a solution, whatever triangle of it is taken."""
    n = x.shape[-1]
    return jnp.tanh(x) / n + 2 * jnp.eye(n, dtype=x.dtype)


def triangles(a: Any, b: Any, **options: Any) -> list[Any]:
    return [
        lax.linalg.triangular_solve(
            dominant(a), b, lower=lower, transpose_a=swap, unit_diagonal=unit, **options
        )
        for lower in (False, True)
        for swap in (False, True)
        for unit in (False, True)
    ]


def pivoted(a: Any) -> Any:
    """Factors of a matrix whose pivots differ by more than rounding."""
    n = a.shape[-1]
    order = jnp.argsort(jnp.sin(7.0 * jnp.arange(n)))
    return lax.linalg.lu(dominant(a)[order])


def reflected(x: Any) -> Any:
    """Reflections as LAPACK packs them, and their product with a matrix."""
    packed, scales = jnp.linalg.qr(jnp.tanh(x), mode="raw")
    return scales, lax.linalg.ormqr(packed.mT, scales, x, transpose=True)


def of_eigenvalues(x: Any, **options: Any) -> Any:
    """Eigenvalues, and a function of the matrix: vectors have any sign."""
    vectors, values = lax.linalg.eigh(x, **options)
    return values, (vectors * jnp.tanh(values)[..., None, :]) @ jnp.swapaxes(
        vectors, -1, -2
    )


def of_singular_values(x: Any, **options: Any) -> Any:
    """Singular values, and a matrix with their roots."""
    left, values, right = lax.linalg.svd(x, **options)
    n = values.shape[-1]
    roots = jnp.sqrt(values)[..., None, :]
    made = (left[..., :n] * roots) @ right[..., :n, :]
    whole = [x @ jnp.swapaxes(x, -1, -2) for x in (left, right)]
    return (values, made, *whole) if left.shape[-2] == left.shape[-1] else made


def transforms(z: Any) -> Any:
    """Both ways, along all axes and the first; of real numbers, too."""
    there, back = jnp.fft.fftn(z), jnp.fft.ifft(z, axis=0)
    half = jnp.fft.rfftn(z.imag)
    parts = [part for v in (there, back, half) for part in (v.real, v.imag)]
    return [*parts, jnp.fft.irfftn(half * 1j, z.shape)]


def spread(x: Any) -> Any:
    """A matrix whose singular values are neither zero nor near to each other."""
    n, m = x.shape[-2:]
    scales = jnp.eye(n, m, dtype=x.dtype) * jnp.arange(1, m + 1, dtype=x.dtype)
    return scales + 0.1 * jnp.tanh(x)


LINALG: dict[str, Case] = {
    **{
        f"cholesky_{n}_{dtype}": case(
            lambda x: lax.linalg.cholesky(definite(jnp.tanh(x))),
            (dtype, (n, n)),
            rounds=4,
        )
        for n, dtype in ((1, F), (3, F), (4, D), (11, F), (18, D))
    },
    "cholesky_batch": case(
        lambda x: jnp.linalg.cholesky(definite(jnp.tanh(x))), (F, (2, 3, 3)), rounds=4
    ),
    "cholesky_not_definite": case(
        lambda x: (jnp.linalg.cholesky(x), jnp.linalg.cholesky(-definite(x))),
        (F, (3, 3)),
    ),
    "cholesky_state": case(
        lambda x: lax.linalg.cholesky(definite(jnp.tanh(x))),
        (D, (5, 5)),
        state=True,
        rounds=8,
    ),
    "triangular": case(
        lambda a, b: triangles(a, b, left_side=True), (F, (5, 5)), (F, (5, 1)), rounds=4
    ),
    "triangular_columns": case(
        lambda a, b: triangles(a, b, left_side=True), (D, (3, 3)), (D, (3, 6)), rounds=4
    ),
    "triangular_right": case(triangles, (F, (4, 4)), (F, (3, 4)), rounds=4),
    "triangular_long": case(
        lambda a, b: lax.linalg.triangular_solve(dominant(a), b, lower=True),
        (F, (18, 18)),
        (F, (18, 18)),
        rounds=8,
    ),
    "triangular_batch": case(
        lambda a, b: lax.linalg.triangular_solve(dominant(a), b, left_side=True),
        (F, (2, 3, 3)),
        (F, (2, 3, 2)),
        rounds=4,
    ),
    "lu": case(lambda a: [pivoted(a), jnp.linalg.slogdet(a)], (F, (5, 5)), rounds=16),
    "lu_long": case(pivoted, (D, (18, 18)), rounds=16),
    "lu_12": case(lambda a: lax.linalg.lu(jnp.tanh(a)), (F, (12, 12)), rounds=16),
    "lu_wide": case(lambda a: lax.linalg.lu(jnp.tanh(a)), (F, (3, 5)), rounds=16),
    "lu_tall": case(lambda a: lax.linalg.lu(jnp.tanh(a)), (D, (11, 3)), rounds=16),
    "lu_singular": case(
        lambda a: lax.linalg.lu(dominant(a).at[:, 1].set(0)), (F, (4, 4)), rounds=4
    ),
    "lu_order": case(
        lambda p: lax.linalg.lu_pivots_to_permutation(
            jnp.minimum(jnp.arange(4) + p % 4, 5).astype(I), 6
        ),
        (I, (4,)),
    ),
    **{
        f"qr_{rows}x{columns}": case(
            lambda x: (jnp.linalg.qr(jnp.tanh(x)), jnp.linalg.qr(x, mode="complete")),
            (dtype, (rows, columns)),
            rounds=16,
        )
        for rows, columns, dtype in ((3, 3, F), (5, 2, F), (2, 4, D), (12, 7, D))
    },
    "qr_packed": case(reflected, (F, (5, 3)), rounds=16),
    "qr_of_triangle": case(lambda x: jnp.linalg.qr(jnp.triu(x)), (F, (4, 4)), rounds=4),
    **{
        f"eigh_{n}_{dtype}": case(
            lambda x: of_eigenvalues(jnp.tanh(x)), (dtype, (n, n)), rounds=16
        )
        for n, dtype in ((1, F), (3, D), (4, F), (7, F), (8, D))
    },
    "eigh_batch": case(
        lambda x: of_eigenvalues(jnp.tanh(x), lower=False, symmetrize_input=False),
        (F, (2, 3, 3)),
        rounds=16,
    ),
    "eigh_state": case(
        lambda x: of_eigenvalues(jnp.tanh(x))[1], (F, (3, 3)), state=True, rounds=16
    ),
    **{
        f"svd_{rows}x{columns}": case(
            lambda x: [
                of_singular_values(spread(x), full_matrices=full)
                for full in (False, True)
            ],
            (dtype, (rows, columns)),
            rounds=16,
        )
        for rows, columns, dtype in ((3, 3, F), (4, 2, D), (2, 7, F), (6, 6, D))
    },
    "svd_values": case(
        lambda x: (
            lax.linalg.svd(spread(x), compute_uv=False),
            jnp.linalg.norm(spread(x), ord=2),
            jnp.linalg.matrix_rank(spread(x)),
        ),
        (F, (5, 3)),
        rounds=16,
    ),
    "pinv": case(lambda x: jnp.linalg.pinv(spread(x)), (F, (2, 4, 3)), rounds=16),
    **{
        f"fft_{'x'.join(map(str, shape))}": case(
            lambda x, y: transforms(lax.complex(x, y)),
            *[(dtype, shape)] * 2,
            rounds=4,
        )
        for shape, dtype in (((8,), F), ((32,), D), ((4, 16), F))
    },
    "fft_state": case(
        lambda x: jnp.fft.irfft(jnp.fft.rfft(jnp.tanh(x)) * 0.5),
        (F, (16,)),
        state=True,
        rounds=4,
    ),
    "solve": case(
        lambda a, b: jnp.linalg.solve(dominant(a), b), (D, (4, 4)), (D, (4,)), rounds=16
    ),
    "inverse": case(
        lambda a: (jnp.linalg.inv(dominant(a)), jnp.linalg.det(dominant(a))),
        (F, (4, 4)),
        rounds=16,
    ),
}
