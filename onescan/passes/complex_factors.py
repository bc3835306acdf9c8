"""Unitary factors of complex matrices that are pairs of real ones.

An equation of its own stands for each that kernels have: it takes the parts of its
operands, and gives those of its results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from onescan.passes.complex_numbers import Pair


def _packed(x: Any) -> Any:
    packed, scales = jnp.linalg.qr(x, mode="raw")
    return jnp.swapaxes(packed, -1, -2), scales


def _qr(x: Any, *, full_matrices: bool) -> Any:
    return lax.linalg.qr(x, full_matrices=full_matrices)


def _ormqr(packed: Any, scales: Any, x: Any, *, transpose: bool) -> Any:
    return [lax.linalg.ormqr(packed, scales, x, transpose=transpose)]


def _eigh(x: Any, *, lower: bool) -> Any:
    return lax.linalg.eigh(x, lower=lower, symmetrize_input=False)


def _svd(x: Any, *, full_matrices: bool, compute_uv: bool) -> Any:
    if not compute_uv:
        return [lax.linalg.svd(x, compute_uv=False)]
    left, values, right = lax.linalg.svd(x, full_matrices=full_matrices)
    return values, left, right


def _of_parts(name: str, library: Callable[..., Any]) -> Primitive:
    """A primitive of the parts of complex numbers; XLA has it from a library."""

    def by_library(*parts: Any, **params: Any) -> list[Any]:
        whole = map(lax.complex, parts[::2], parts[1::2])
        found = library(*whole, **params)
        return [
            part
            for y in found
            for part in ((y.real, y.imag) if jnp.iscomplexobj(y) else (y,))
        ]

    def types(*parts: Any, **params: Any) -> list[ShapedArray]:
        found = jax.eval_shape(partial(by_library, **params), *parts)
        return [ShapedArray(x.shape, x.dtype) for x in found]

    primitive = Primitive(f"onescan_{name}")
    primitive.multiple_results = True
    primitive.def_impl(by_library)
    primitive.def_abstract_eval(types)
    lowering = mlir.lower_fun(by_library, multiple_results=True)
    mlir.register_lowering(primitive, lowering)
    return primitive


geqrf_p = _of_parts("geqrf", _packed)
ormqr_p = _of_parts("ormqr", _ormqr)
qr_p = _of_parts("qr", _qr)
eigh_p = _of_parts("eigh", _eigh)
svd_p = _of_parts("svd", _svd)


def geqrf(_: Any, x: Pair) -> list[Any]:
    """Reflections below an upper triangular matrix, and their scales."""
    return _pairs(geqrf_p.bind(*x))


def qr(params: Any, x: Pair) -> list[Any]:
    return _pairs(qr_p.bind(*x, full_matrices=params["full_matrices"]))


def ormqr(params: Any, packed: Pair, scales: Pair, x: Pair) -> Pair:
    """A matrix multiplied from the left by packed reflections, or backwards."""
    parts = *packed, *scales, *x
    return Pair(*ormqr_p.bind(*parts, transpose=params["transpose"]))


def householder_product(_: Any, packed: Pair, scales: Pair) -> Pair:
    shape, dtype = packed.re.shape, packed.re.dtype
    one = jnp.broadcast_to(np.eye(*shape[-2:], dtype=dtype), shape)
    return ormqr({"transpose": False}, packed, scales, Pair(one, jnp.zeros_like(one)))


def eigh(params: Any, x: Pair) -> list[Any]:
    re, im, values = eigh_p.bind(*x, lower=params["lower"])
    return [Pair(re, im), values]


def svd(params: Any, x: Pair) -> list[Any]:
    asked_for = {name: params[name] for name in ("full_matrices", "compute_uv")}
    values, *sides = svd_p.bind(*x, **asked_for)
    return [values, *_pairs(sides)]


def _pairs(parts: list[Any]) -> list[Any]:
    return list(map(Pair, parts[::2], parts[1::2]))
