"""Products with real matrices in front of a loop of complex numbers."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from jax import lax

import onescan

RNG = np.random.default_rng(0)
U, B = (jnp.asarray(RNG.normal(size=s), "float32") for s in ((9, 3, 5), (5, 18)))
C = lax.complex(B, B[::-1])


def states(scan: Any, drive: Any) -> Any:
    start = jnp.zeros(drive.shape[1:], drive.dtype)
    return scan(lambda x, d: ((0.5 + 0.2j) * x + d, x), start, drive)


def products(f: Any, *args: Any) -> list[str]:
    """The types of the products in a program, whose results are those of stock JAX."""
    with onescan.engine("native"):
        program = jax.jit(lambda *xs: f(onescan.scan, *xs)).lower(*args).compile()
    assert_same(program(*args), jax.jit(lambda *xs: f(lax.scan, *xs))(*args))
    return re.findall(r"= (\w+)\[\S+ dot\(", program.as_text())


@pytest.mark.parametrize(
    ("f", "kinds"),
    [
        (lambda scan, u, b, c: states(scan, u @ b.astype("complex64")), ["f32"]),
        (lambda scan, u, b, c: states(scan, lax.complex(u, 0 * u) @ c), ["c64"]),
        (lambda scan, u, b, c: states(scan, u @ c), ["f32", "f32"]),
        (lambda scan, u, b, c: states(scan, (u + 1j) @ b), ["f32", "f32"]),
        (lambda scan, u, b, c: states(scan, (u + 1j) @ c), ["c64"]),
        (lambda scan, u, b, c: states(scan, u @ np.asarray(C)), ["f32", "f32"]),
    ],
    ids=["both real", "unknown", "left real", "right real", "complex", "constant"],
)
def test_parts_of_products_are_real_products(f: Any, kinds: list[str]) -> None:
    assert products(f, U, B, C) == kinds


def test_gradients_multiply_real_matrices_too() -> None:
    def f(scan: Any, u: Any, b: Any) -> Any:
        drive = lambda u: states(scan, u @ b.astype("complex64"))[1]
        return jax.grad(lambda u: jnp.sum((drive(u) @ b.T).real ** 2))(u)

    assert "f32" in products(f, U, B)
