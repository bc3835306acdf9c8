"""Fourier transforms of complex numbers that are pairs.

One equation of its own, `fft_p`, transforms along one axis: two real arrays in, and
two out.  Everything else is told by it: an inverse is a transform with its parts
exchanged, real numbers are complex ones without a second part, several axes go one
after the other.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from onescan.primitives.transforms import sizes_refused

fft_p = Primitive("onescan_fft")
fft_p.multiple_results = True

#: the two parts of complex numbers
Parts = tuple[Any, Any]


@fft_p.def_impl
def _by_library(re: Any, im: Any, *, axis: int) -> list[Any]:
    found = jnp.fft.fft(lax.complex(re, im), axis=axis)
    return [found.real, found.imag]


@fft_p.def_abstract_eval
def _types(re: Any, im: Any, *, axis: int) -> list[ShapedArray]:
    return [ShapedArray(x.shape, x.dtype) for x in (re, im)]


mlir.register_lowering(fft_p, mlir.lower_fun(_by_library, multiple_results=True))


def transformed(eqn: Any, x: Any) -> Any:
    """What JAX's `fft` is of a pair or a real array; None where that is not known."""
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    if sizes_refused(eqn):
        return None
    if kind == lax.FftType.RFFT:
        return _forwards(_of_real(x, lengths[-1]), lengths[:-1], last=1)
    if kind == lax.FftType.FFT:
        return _forwards(x, lengths, last=0)
    if kind == lax.FftType.IFFT:
        return _backwards(x, lengths, last=0)
    return _to_real(_backwards(x, lengths[:-1], last=1), lengths[-1])


def _forwards(parts: Parts, lengths: tuple[int, ...], last: int) -> Parts:
    """Along as many axes as lengths, in front of the `last` ones."""
    re, im = parts
    for k, n in enumerate(reversed(lengths)):
        if n > 1:
            re, im = fft_p.bind(re, im, axis=re.ndim - 1 - last - k)
    return re, im


def _backwards(parts: Parts, lengths: tuple[int, ...], last: int) -> Parts:
    re, im = parts
    im, re = _forwards((im, re), lengths, last)
    share = np.asarray(1 / np.prod(lengths, initial=1.0), re.dtype)
    return re * share, im * share


def _of_real(x: Any, n: int) -> Parts:
    """Of real numbers: the first half, of which the other one is a mirror image."""
    re, im = _forwards((x, jnp.zeros_like(x)), (n,), last=0)
    return re[..., : n // 2 + 1], im[..., : n // 2 + 1]


def _to_real(parts: Parts, n: int) -> Any:
    """The inverse: whatever parts of the first and last number are not real."""
    re, im = parts
    inner = np.ones(n // 2 + 1, re.dtype)
    inner[[0, -1]] = 0
    im = im * inner
    re, im = (
        jnp.concatenate([half, rest[..., 1 : (n + 1) // 2][..., ::-1]], -1)
        for half, rest in ((re, re), (im, -im))
    )
    return _backwards((re, im), (n,), last=0)[0]
