"""Matrices that a step turns around: in squares, whatever their sizes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree, run
from jax import lax
from kernels import kernel_of, loop_in, plan_of

import onescan
from onescan.targets.cpu.kernel import optimised_ir

XS = jnp.linspace(-1.0, 1.0, 5)
ENGINES = ("native", "xla")


def turned(c: Any, x: Any) -> Any:
    return c.T * 0.5 + x.astype(c.dtype), None


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int16", "bool"])
@pytest.mark.parametrize("side", [1, 3, 16, 17, 40])
def test_squares(dtype: str, side: int) -> None:
    def step(c: Any, x: Any) -> Any:
        return c.T ^ c if dtype == "bool" else turned(c, x)[0].astype(dtype), c[0]

    with jax.enable_x64(dtype == "float64"):
        rng = np.random.default_rng(side)
        c = jnp.asarray(rng.integers(0, 9, (side, side)), dtype)
        assert_engines_agree(partial(onescan.scan, step), c, XS)


@pytest.mark.parametrize("shape", [(33, 16), (16, 47), (2, 20, 35), (65, 3, 18)])
def test_what_reads_them(shape: tuple[int, ...]) -> None:
    """Elements, sums, products, and what takes them for lines of another shape."""

    def step(c: Any, x: Any) -> Any:
        y = jnp.moveaxis(c, 0, -1)
        lines = y.reshape(c.shape)
        product = jnp.einsum("...a,...b->ab", y, y)
        return c * 0.5 + jnp.tanh(lines) * x, (y[..., 1:] + x, y.sum(-1), product)

    c = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    found, expected = (run(e, partial(onescan.scan, step), c, XS) for e in ENGINES)
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


def test_no_number_is_read_by_itself() -> None:
    loop = loop_in(lambda c, xs: lax.scan(turned, c, xs), jnp.ones((64, 64)), XS)
    text = optimised_ir(kernel_of(plan_of(loop)))
    assert text.count("insertelement") < 16
    assert "shufflevector" in text
