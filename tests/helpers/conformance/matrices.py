"""Factors, solutions and transforms in a kernel, beside those of XLA's libraries.

Their results are not unique to the last place, so what is compared is the backward
error: how far the factors' product is from the matrix, relative to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from engines import kernels_alone
from jax import lax
from linalg_checks import in_a_body, matrices

REAL = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
#: rows of square matrices; those of a lane are in vectors, one by itself is not
LANES, ALONE = (1, 2, 5, 8, 19, 33), (1, 2, 5, 9)
#: a complex system is a real one of twice the size, and 64 rows are the most
LARGEST_COMPLEX = 32
COUNT = 24
#: rows of those in lanes, and of those alone
Sizes = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Errors:
    """The largest backward error of an operation, in units of its type's rounding."""

    name: str
    dtype: str
    ours: float
    theirs: float


@dataclass(frozen=True)
class Op:
    f: Callable[[Any], Any]
    #: the matrix, and what `f` made of it
    error: Callable[[np.ndarray, Any], np.ndarray]
    dtypes: tuple[str, ...] = REAL
    definite: bool = False
    sizes: Sizes = (LANES, ALONE)


def turned(x: Any) -> Any:
    """The conjugate transpose."""
    return np.conj(np.swapaxes(x, -1, -2))


def apart(made: Any, wanted: Any) -> np.ndarray:
    size = lambda x: np.linalg.norm(x, axis=(-2, -1))
    return size(made - wanted) / size(wanted)


def unitary(q: Any) -> np.ndarray:
    one = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *2 * q.shape[-1:]))
    return apart(turned(q) @ q, one)


def worst(*errors: np.ndarray) -> np.ndarray:
    return np.max(errors, axis=0)


def _lu(a: Any, found: Any) -> np.ndarray:
    factors, _, order = found
    lower = np.tril(factors, -1) + np.eye(a.shape[-1])
    rows = np.take_along_axis(a, np.int64(np.real(order))[..., None], -2)
    return apart(lower @ np.triu(factors), rows)


def _sides(a: Any) -> Any:
    sides = np.cos(np.arange(2 * a.shape[-1])).reshape(-1, 2)
    return np.broadcast_to(sides, (*a.shape[:-1], 2)).astype(a.dtype)


def _solved(a: Any, x: Any) -> np.ndarray:
    size = lambda x: np.linalg.norm(x, axis=(-2, -1))
    return size(a @ x - _sides(a)) / (size(a) * size(x))


def _triangle(a: Any) -> Any:
    return a + 2 * np.eye(a.shape[-1], dtype=a.dtype)


def _reflected(a: Any) -> Any:
    packed, scales = jnp.linalg.qr(a, mode="raw")
    packed, one = (
        packed.mT,
        jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape),
    )
    return lax.linalg.ormqr(packed, scales, one), jnp.triu(packed)


def _qr(a: Any, found: Any) -> np.ndarray:
    q, r = found
    return worst(apart(q @ r, a), unitary(q))


def _eigh(a: Any, found: Any) -> np.ndarray:
    vectors, values = found
    return worst(
        apart(vectors * values[..., None, :] @ turned(vectors), a), unitary(vectors)
    )


def _svd(a: Any, found: Any) -> np.ndarray:
    u, s, v = found
    return worst(apart(u * s[..., None, :] @ v, a), unitary(u), unitary(turned(v)))


def _waves(f: str, a: Any, found: Any) -> np.ndarray:
    return apart(found, getattr(np.fft, f)(a.astype(np.clongdouble)))


OPS: dict[str, Op] = {
    "cholesky": Op(
        lax.linalg.cholesky,
        lambda a, x: apart(x @ turned(x), a),
        (*REAL, *COMPLEX),
        definite=True,
    ),
    "lu": Op(lax.linalg.lu, _lu, (*REAL, *COMPLEX)),
    "solve": Op(lambda a: jnp.linalg.solve(a, _sides(a)), _solved, (*REAL, *COMPLEX)),
    "triangular_solve": Op(
        lambda a: lax.linalg.triangular_solve(
            _triangle(a), _sides(a), left_side=True, lower=True
        ),
        lambda a, x: _solved(np.tril(_triangle(a)), x),
    ),
    "qr": Op(jnp.linalg.qr, _qr, (*REAL, *COMPLEX), sizes=(LANES[:-1], ALONE)),
    "geqrf, ormqr": Op(_reflected, _qr, (*REAL, *COMPLEX), sizes=(LANES[:-1], ALONE)),
    "eigh": Op(
        lax.linalg.eigh,
        _eigh,
        (*REAL, *COMPLEX),
        definite=True,
        sizes=((1, 2, 5, 19), (1, 2, 5)),
    ),
    "svd": Op(
        partial(lax.linalg.svd, full_matrices=False),
        _svd,
        (*REAL, *COMPLEX),
        sizes=((1, 2, 5, 19), (1, 2, 5)),
    ),
    **{
        name: Op(
            getattr(jnp.fft, name),
            partial(_waves, name),
            COMPLEX,
            sizes=((1, 2, 8, 32), (4, 16)),
        )
        for name in ("fft", "ifft")
    },
}


def given(n: int, dtype: str, definite: bool) -> np.ndarray:
    """Matrices whose condition goes from good to bad."""
    real = {"complex64": np.float32, "complex128": np.float64}.get(
        dtype, np.dtype(dtype)
    )
    left, scales, right = matrices(n, real, COUNT)
    if dtype in COMPLEX:
        turn = np.exp(1j * np.arange(n))
        left, right = left * turn[:, None], right * turn[::-1]
    whole = left * scales[:, None] @ (turned(left) if definite else right)
    whole = (whole + turned(whole)) / 2 if definite else whole
    return whole.astype(dtype)


def measured(
    dtype: str, names: Iterable[str], sizes: Sizes | None = None
) -> Iterator[Errors]:
    """The operations of these names that take this type, in lanes and one by one."""
    for name in names:
        op = OPS[name]
        if dtype not in op.dtypes:
            continue
        ours, theirs = [], []
        for several, alone in zip(sizes or op.sizes, (False, True), strict=True):
            for n in several:
                if dtype in COMPLEX and n > LARGEST_COMPLEX:
                    continue
                a = given(n, dtype, op.definite)
                a = a[-1] if alone else a
                wide = a.astype(np.complex128 if dtype in COMPLEX else np.float64)
                with kernels_alone():
                    found = in_a_body(op.f, jnp.asarray(a), wide=wide.dtype)
                    stock = jax.tree.map(
                        lambda x: np.asarray(x, wide.dtype), op.f(jnp.asarray(a))
                    )
                ours.append(op.error(wide, found).max())
                theirs.append(op.error(wide, stock).max())
        unit = float(np.finfo(dtype).eps)
        yield Errors(name, dtype, max(ours) / unit, max(theirs) / unit)


def names() -> list[str]:
    return list(OPS)
