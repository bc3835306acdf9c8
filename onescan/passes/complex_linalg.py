"""Factors of complex matrices that are pairs of real ones.

A complex number x + iy is the real matrix [[x, -y], [y, x]], and a complex matrix one
of such blocks, twice as large.  Its Cholesky factor is the one of blocks, and so is a
triangle with ones on its diagonal: a system with one is a real system.  Elimination
with pivots looks at sizes of numbers, so it is written out, step by step.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from onescan.passes.complex_numbers import Pair, over, times


def _swapped(x: Pair) -> Pair:
    return Pair(*(jnp.swapaxes(part, -1, -2) for part in x))


def _blocks(x: Pair) -> Any:
    """The real matrix of a complex one."""
    rows = jnp.stack([x.re, -x.im], -1), jnp.stack([x.im, x.re], -1)
    whole = jnp.stack(rows, -3)
    *batch, n, _, m, _ = whole.shape
    return whole.reshape(*batch, 2 * n, 2 * m)


def _without_diagonal(x: Any) -> Any:
    return jnp.where(np.eye(x.shape[-1], dtype=bool), jnp.zeros_like(x), x)


def cholesky(x: Pair) -> Pair:
    """From the factor of the real matrix, each number of which is there twice.

    Rounding tells the two apart, by much where the matrix is nearly singular.  Their
    mean, with columns turned until the diagonal is real, is as good as a factor that
    was never real.
    """
    n = x.re.shape[-1]
    factor = lax.linalg.cholesky(
        _blocks(Pair(x.re, _without_diagonal(x.im))), symmetrize_input=False
    )
    blocks = factor.reshape(*x.re.shape[:-2], n, 2, n, 2)
    part = lambda i, j: blocks[..., i, :, j]
    mean = Pair((part(0, 0) + part(1, 1)) / 2, (part(1, 0) - part(0, 1)) / 2)
    diagonal = Pair(*(jnp.diagonal(y, axis1=-2, axis2=-1)[..., None, :] for y in mean))
    tilt = diagonal.im / diagonal.re
    cosine = lax.rsqrt(1 + tilt * tilt)
    made = times(mean, Pair(cosine, -tilt * cosine))
    lower = np.tri(n, dtype=bool)
    re, im = (jnp.where(lower, y, jnp.zeros_like(y)) for y in made)
    return Pair(re, _without_diagonal(im))


def triangular_solve(params: Any, a: Pair, b: Pair) -> Pair:
    """All problems as one: M X = B, with ones on the diagonal of M."""
    a = Pair(a.re, -a.im) if params["conjugate_a"] else a
    left, lower = params["left_side"], params["lower"]
    if params["transpose_a"] == left:
        a, lower = _swapped(a), not lower
    b = b if left else _swapped(b)
    if not params["unit_diagonal"]:
        diagonal = Pair(*(jnp.diagonal(part, 0, -2, -1)[..., None] for part in a))
        a, b = over(a, diagonal), over(b, diagonal)
    *batch, n, columns = b.re.shape
    found = lax.linalg.triangular_solve(
        _blocks(Pair(a.re, _without_diagonal(a.im))),
        jnp.stack(b, -2).reshape(*batch, 2 * n, columns),
        left_side=True,
        lower=lower,
        unit_diagonal=True,
    ).reshape(*batch, n, 2, columns)
    x = Pair(found[..., 0, :], found[..., 1, :])
    return x if left else _swapped(x)


def lu(x: Pair) -> list[Any]:
    """A pivot is the first of those with the largest sum of sizes of both parts."""
    *batch, rows, columns = x.re.shape
    steps = min(rows, columns)
    row = np.arange(rows, dtype=np.int32)
    order = jnp.broadcast_to(row, (*batch, rows))
    if not steps:
        return [x, jnp.zeros((*batch, 0), np.int32), order]

    def step(state: Any, k: Any) -> Any:
        a, order = state
        column = Pair(*(lax.dynamic_index_in_dim(p, k, -1, False) for p in a))
        sizes = jnp.where(row >= k, jnp.abs(column.re) + jnp.abs(column.im), -1)
        pivot = lax.argmax(sizes, sizes.ndim - 1, np.int32)
        chosen = (row == pivot[..., None]).astype(a.re.dtype)
        exchanged = [_exchanged(p, k, chosen, row) for p in a]
        order = _exchanged(order[..., None], k, chosen, row)[..., 0]
        a = Pair(*exchanged)
        top = Pair(*(lax.dynamic_index_in_dim(p, k, -2) for p in a))
        column = Pair(*(lax.dynamic_index_in_dim(p, k, -1) for p in a))
        diagonal = Pair(*(lax.dynamic_index_in_dim(p, k, -1) for p in top))
        zero = (diagonal.re == 0) & (diagonal.im == 0)
        one = Pair(jnp.ones_like(diagonal.re), jnp.zeros_like(diagonal.im))
        safe = Pair(
            *(jnp.where(zero, p, q) for p, q in zip(one, diagonal, strict=True))
        )
        below = (row > k)[:, None]
        by = Pair(*(jnp.where(below, p, 0) for p in over(column, safe)))
        after = np.arange(columns, dtype=np.int32) > k
        taken = times(by, Pair(*(jnp.where(after, p, 0) for p in top)))
        here = below & (np.arange(columns, dtype=np.int32) == k)
        parts = zip(a, taken, by, strict=True)
        a = Pair(*(jnp.where(here, q, p - t) for p, t, q in parts))
        return (a, order), pivot

    first = Pair(*x), order
    (a, order), pivots = lax.scan(step, first, np.arange(steps, dtype=np.int32))
    return [a, jnp.moveaxis(pivots, 0, -1), order]


def _exchanged(x: Any, k: Any, chosen: Any, row: Any) -> Any:
    """Rows k and the chosen one change places."""
    is_chosen = chosen[..., None] > 0
    upper = lax.dynamic_index_in_dim(x, k, -2)
    lower = jnp.sum(jnp.where(is_chosen, x, 0), -2, keepdims=True, dtype=x.dtype)
    there = jnp.where(is_chosen, upper, x)
    return jnp.where((row == k)[:, None], lower, there)
