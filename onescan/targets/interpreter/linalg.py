"""Factors of matrices and solutions with them, in NumPy, as their definitions say."""

from __future__ import annotations

from typing import Any

import numpy as np

from onescan.primitives.linalg import OF_PARTS


def _cholesky(params: Any, x: Any) -> Any:
    factor, ok = np.zeros_like(x), np.ones(x.shape[:-2], bool)
    for j in range(x.shape[-1]):
        rest = x[..., j:, j] - _dot(factor[..., j:, :j], factor[..., j, :j])
        ok &= ~(rest[..., 0] <= 0)
        factor[..., j:, j] = rest / np.sqrt(rest[..., :1])
    return np.where(ok[..., None, None], factor, np.nan)


def _dot(rows: Any, row: Any) -> Any:
    return np.einsum("...ik,...k->...i", rows, row)


def _triangular_solve(params: Any, a: Any, b: Any) -> Any:
    if not params["left_side"]:
        other = {"left_side": True, "transpose_a": not params["transpose_a"]}
        found = _triangular_solve(params | other, a, np.swapaxes(b, -1, -2))
        return np.swapaxes(found, -1, -2)
    lower = params["lower"] != params["transpose_a"]
    a = np.swapaxes(a, -1, -2) if params["transpose_a"] else a
    found = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + b.shape[-2:])
    found = found.astype(b.dtype)
    n = a.shape[-1]
    for i in range(n) if lower else reversed(range(n)):
        known = slice(0, i) if lower else slice(i + 1, n)
        rest = np.einsum("...k,...kc->...c", a[..., i, known], found[..., known, :])
        found[..., i, :] = b[..., i, :] - rest
        if not params["unit_diagonal"]:
            found[..., i, :] /= a[..., i, i, None]
    return found


def _lu(params: Any, x: Any) -> Any:
    rows, columns = x.shape[-2:]
    flat = x.reshape(-1, rows, columns).copy()
    pivots = np.zeros((len(flat), min(rows, columns)), np.int32)
    order = np.tile(np.arange(rows, dtype=np.int32), (len(flat), 1))
    for a, found, p in zip(flat, pivots, order, strict=True):
        for k in range(len(found)):
            found[k] = i = k + np.argmax(np.abs(a[k:, k]))
            a[[k, i]], p[[k, i]] = a[[i, k]], p[[i, k]]
            if a[k, k]:
                a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    batch = x.shape[:-2]
    return [
        flat.reshape(x.shape),
        pivots.reshape(*batch, -1) if batch else pivots[0],
        order.reshape(*batch, rows),
    ]


def _order(params: Any, pivots: Any) -> Any:
    size = params["permutation_size"]
    order = np.tile(np.arange(size, dtype=np.int32), (*pivots.shape[:-1], 1))
    flat, exchanges = order.reshape(-1, size), pivots.reshape(-1, pivots.shape[-1])
    for p, found in zip(flat, exchanges, strict=True):
        for k, i in enumerate(found):
            p[[k, i]] = p[[i, k]]
    return order


def _qr(params: Any, x: Any) -> Any:
    return list(np.linalg.qr(x, "complete" if params["full_matrices"] else "reduced"))


def _geqrf(params: Any, x: Any) -> Any:
    packed, scales = np.linalg.qr(x, "raw")
    return [np.swapaxes(packed, -1, -2), scales]


def _ormqr(params: Any, packed: Any, scales: Any, x: Any) -> Any:
    steps = range(scales.shape[-1])
    for k in steps if params["transpose"] else reversed(steps):
        vector = np.tril(packed, -1)[..., k, None]
        vector[..., k, :] = 1
        share = np.swapaxes(vector.conj(), -1, -2) @ x
        scale = scales[..., k, None, None]
        x = x - (scale.conj() if params["transpose"] else scale) * vector * share
    return x


def _eigh(params: Any, x: Any) -> Any:
    values, vectors = np.linalg.eigh(x, "L" if params["lower"] else "U")
    return [vectors, values]


def _svd(params: Any, x: Any) -> Any:
    if not params["compute_uv"]:
        return [np.linalg.svd(x, compute_uv=False)]
    left, values, right = np.linalg.svd(x, params["full_matrices"])
    return [values, left, right]


def _of_parts(function: Any) -> Any:
    """The same of complex matrices, which come and go as their parts."""

    def parted(params: Any, *parts: Any) -> list[Any]:
        whole = [re + 1j * im for re, im in zip(parts[::2], parts[1::2], strict=True)]
        found = function(params, *whole)
        return [
            part
            for y in (found if isinstance(found, list) else [found])
            for part in ((y.real, y.imag) if np.iscomplexobj(y) else (y,))
        ]

    return parted


MATRICES = {
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    "lu": _lu,
    "qr": _qr,
    "geqrf": _geqrf,
    "ormqr": _ormqr,
    "eigh": _eigh,
    "svd": _svd,
    "lu_pivots_to_permutation": _order,
}
MATRICES |= {f"onescan_{name}": _of_parts(MATRICES[name]) for name in OF_PARTS}
