"""Matrices of 9 and more rows in a body, which the threads of a block share.

Each factorisation has a backward error, and may have at most twice that of stock JAX on
the same device: of random matrices, graded ones, and ones of less than full rank.  One
that is not finite has NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from linalg_checks import assert_no_worse, error_of, not_orthogonal, swapped

import onescan

SQUARE = [(9, 9), (16, 16), (33, 33), (64, 64), (3, 12, 12)]
OTHERS = [(40, 24), (24, 40)]
#: of float64, fewer
WIDE = [(9, 9), (64, 64)]


def _qr(found: Any, wanted: Any) -> Any:
    q, r = found
    return np.maximum(error_of(q @ r, wanted), not_orthogonal(q))


def _packed_qr(x: Any) -> Any:
    """The orthogonal factor and the upper triangle, from packed reflections."""
    packed, scales = jnp.linalg.qr(x, mode="raw")
    packed = jnp.swapaxes(packed, -1, -2)
    one = jnp.broadcast_to(jnp.eye(x.shape[-2], dtype=x.dtype), x.shape)
    q = lax.linalg.ormqr(packed, scales, one, transpose=False)
    return q, jnp.triu(packed)


def _eigh(found: Any, wanted: Any) -> Any:
    vectors, values = found
    assert (np.diff(values) >= 0).all()
    made = vectors * values[..., None, :] @ swapped(vectors)
    wanted = (wanted + swapped(wanted)) / 2
    return np.maximum(error_of(made, wanted), not_orthogonal(vectors))


def svd_errors(found: Any, wanted: Any) -> Any:
    left, values, right = found
    n = values.shape[-1]
    assert (np.diff(values) <= 0).all()
    assert (values >= 0).all()
    made = left[..., :n] * values[..., None, :] @ right[..., :n, :]
    parts = [error_of(made, wanted)]
    parts += [not_orthogonal(left), not_orthogonal(swapped(right))]
    return np.max(parts, axis=0)


Factors = tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]
FACTORS: dict[str, Factors] = {
    "qr": (lax.linalg.qr, _qr, SQUARE + OTHERS),
    "packed qr": (_packed_qr, _qr, SQUARE),
    "eigh": (lax.linalg.eigh, _eigh, SQUARE),
    "svd": (
        partial(lax.linalg.svd, full_matrices=False),
        svd_errors,
        SQUARE + OTHERS,
    ),
    "full svd": (lax.linalg.svd, svd_errors, OTHERS),
}


def examples(shape: tuple[int, ...], dtype: Any) -> Any:
    """Random, graded, of rank two; the last one is not finite."""
    rng = np.random.default_rng(0)
    some = rng.normal(size=(4, *shape))
    n = shape[-1]
    some[1] *= np.logspace(0, -5, n)
    some[2] = some[2][..., :2] @ rng.normal(size=(2, n))
    some[3, ..., n // 2, n // 3] = np.nan
    return some.astype(dtype)


def shared(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    f, errors, _ = FACTORS[name]
    xs = examples(shape, dtype)

    def step(c: Any, x: Any) -> Any:
        found = f(x + c)  # which depends on the step before, but for rounding
        return 1e-30 * jax.tree.leaves(found)[0].sum(), found

    def factors(scan: Any, xs: Any) -> Any:
        return scan(step, jnp.zeros((), dtype), xs)[1]

    def run(engine: Any, scan: Any) -> Any:
        with onescan.engine(engine):
            found = jax.jit(partial(factors, scan))(jnp.asarray(xs))
        return jax.tree.leaves(jax.tree.map(np.float64, jax.device_get(found)))

    here = "native" if jax.default_backend() == "gpu" else "auto"
    with jax.enable_x64(dtype == np.float64):
        ours, stock = run(here, onescan.scan), run("xla", lax.scan)
    good = [[x[:3] for x in found] for found in (ours, stock)]
    assert_no_worse(*(errors(found, np.float64(xs[:3])) for found in good), dtype)
    assert all(np.isnan(x[3]).any() for x in ours)
    if name == "qr":  # signs are LAPACK's
        upper = [np.diagonal(r[:2], axis1=-2, axis2=-1) for _, r in good]
        np.testing.assert_array_equal(*map(np.sign, upper))


CHECKS: dict[str, Callable[[], None]] = {
    f"{name}, {'x'.join(map(str, shape))} {dtype.__name__}": partial(
        shared, name, shape, dtype
    )
    for name, (_, _, shapes) in FACTORS.items()
    for dtype, these in (
        (np.float32, shapes),
        (np.float64, WIDE if len(shapes) > 2 else []),
    )
    for shape in these
}
