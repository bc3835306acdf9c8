"""Numbers too small to be normal, and the neighbours of numbers.

XLA's threads read such numbers as zero.  Where its functions do not, ours do not
either; where they give something else altogether (pow, cbrt), ours give the right
result, or that for zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import kernels_alone, run
from jax import lax
from old_xla import wrong_at

import onescan

SMALL = np.array([1e-45, 1e-40, 5e-39, 1.1e-38], np.float32)
SMALL = np.concatenate([SMALL, -SMALL, np.array([0.0, -0.0], np.float32)])


def native(f: Callable[..., Any], *args: Any) -> Any:
    loop = lambda *xs: onescan.scan(lambda c, x: (c, f(*x)), 0, xs)[1]
    with kernels_alone():
        return jax.tree.map(np.asarray, run("native", loop, *args))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_nextafter_of_halves(dtype: str) -> None:
    """From every number there is, up and down, and to itself."""
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 64)
    x = bits.view(jnp.dtype(dtype))
    up, down = (np.full_like(x, np.inf), np.full_like(x, -np.inf))
    for y in (up, down, x):
        got = native(lax.nextafter, x, y)
        with np.errstate(all="ignore"):
            want = np.nextafter(x, y)
            np.testing.assert_array_equal(got.astype("f4"), want.astype("f4"))
    assert native(lax.nextafter, x[:1], up[:1])[0, 0] > 0


def test_bits_of_every_bfloat16() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 64)
    as_bits = lambda x: lax.bitcast_convert_type(x, jnp.uint16)
    got = native(as_bits, bits.view(jnp.dtype("bfloat16")))
    np.testing.assert_array_equal(got, bits)


@pytest.mark.parametrize("bits", [(5, 10), (8, 7), (4, 3)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_reduced_precision(dtype: str, bits: tuple[int, int]) -> None:
    with np.errstate(all="ignore"):
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(dtype)
        x = np.concatenate([every, every * every.dtype.type(1.001)]).reshape(-1, 64)
    f = lambda x: lax.reduce_precision(x, *bits)
    got, want = native(f, x), np.asarray(f(jnp.asarray(x)))
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_functions_that_xla_does_not_flush() -> None:
    results = native(lambda x: (lax.sign(x), lax.lgamma(x)), SMALL[:, None])
    want = [np.asarray(f(jnp.asarray(SMALL))) for f in (lax.sign, lax.lgamma)]
    for name, got, eager in zip(("sign", "lgamma"), results, want, strict=True):
        right = ~wrong_at(name, SMALL)
        np.testing.assert_array_equal(got.ravel()[right], eager[right])


def test_roots_of_what_is_read_as_zero_are_zero() -> None:
    got = native(lax.cbrt, SMALL)
    np.testing.assert_array_equal(got, np.copysign(np.float32(0), SMALL))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles(dtype: Any) -> None:
    tiny = np.finfo(dtype).tiny
    some = np.array([0, -0.0, tiny / 8, -tiny / 8, tiny / 2, 1, -1, np.inf], dtype)
    y, x = map(np.ravel, np.meshgrid(some, some))
    got, want = native(lax.atan2, y, x), np.arctan2(y, x)
    normal = (np.abs(want) >= tiny) | (want == 0)
    np.testing.assert_allclose(got[normal], want[normal], rtol=3e-7)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers(dtype: Any) -> None:
    tiny = np.finfo(dtype).tiny
    some = np.array([tiny / 4, -tiny / 4, 0, -0.0, 2, -2, 1, tiny], dtype)
    others = np.array([tiny / 8, -tiny / 8, 0, 0.5, -0.25, 1, -1, 2, 1e-3], dtype)
    x, y = map(np.ravel, np.meshgrid(some, others))
    got = native(lax.pow, x, y)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(dtype)
    normal = (np.abs(want) >= tiny) | (want == 0) | np.isnan(want)
    np.testing.assert_allclose(got[normal], want[normal], rtol=4e-7)
