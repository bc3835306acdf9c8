"""Factors of matrices that a kernel makes, beside those of LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import onescan


def in_a_body(f: Callable[..., Any], *args: Any, wide: Any = np.float64) -> Any:
    """What a kernel makes of f(*args), which no pass can take out of the loop."""

    def step(carry: Any, _: Any) -> Any:
        return jax.tree.map(lambda x: x + 0, carry), f(*carry)

    with onescan.engine("native"):
        found = jax.jit(lambda *xs: onescan.scan(step, xs, None, length=2)[1])(*args)
    return jax.tree.map(lambda y: np.asarray(y[-1], wide), found)


def matrices(n: int, dtype: Any, count: int = 24) -> Any:
    """Matrices whose condition goes from good to bad."""
    rng = np.random.default_rng(n)
    left, right = (np.linalg.qr(rng.normal(size=(count, n, n)))[0] for _ in range(2))
    small = np.logspace(0, -4 if dtype == np.float32 else -10, count)
    scales = small[:, None] ** np.linspace(0, 1, n)
    return left, scales, right


def error_of(made: Any, wanted: Any) -> Any:
    """How far products of factors are from their matrices, relative to those."""
    wanted = np.asarray(wanted, np.float64)
    axes = (-2, -1)
    return np.linalg.norm(made - wanted, axis=axes) / np.linalg.norm(wanted, axis=axes)


def not_orthogonal(x: Any) -> Any:
    """How far columns are from orthogonal ones."""
    return error_of(swapped(x) @ x, np.broadcast_to(np.eye(x.shape[-1]), _of(x)))


def _of(x: Any) -> tuple[int, ...]:
    return (*x.shape[:-2], x.shape[-1], x.shape[-1])


def assert_no_worse(ours: Any, theirs: Any, dtype: Any) -> None:
    """The worst and the mean error at most twice those of LAPACK, or one unit."""
    unit = np.finfo(dtype).eps
    assert ours.max() <= 2 * max(theirs.max(), unit), (ours, theirs)
    assert ours.mean() <= 2 * max(theirs.mean(), unit / 2), (ours, theirs)


def swapped(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def each_alone(f: Callable[..., Any], alone: bool, *args: Any) -> Any:
    """All matrices side by side in lanes, or the worst of them by itself."""
    if alone:
        args = tuple(x[-1] for x in args)
    return in_a_body(f, *args), jax.tree.map(np.float64, f(*args))
