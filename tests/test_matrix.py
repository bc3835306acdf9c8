"""Products of matrices beside a loop: every shape, inside its buffers, any machine."""

from __future__ import annotations

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from guarded import call_directly
from jax import lax

import onescan
from onescan.emit.matrix import build
from onescan.passes.products import product
from onescan.pipeline import host
from onescan.plan import matrix
from onescan.plan.choose import Machine
from onescan.plan.matrix import Blocks, Matrices, blocks_of
from onescan.runtime.cpu import Kernel

MACHINES = {
    "host": host(),
    "wide": Machine(64, 7, host().features),
    "narrow": Machine(16, 3),
}
#: rows, columns, depth: whole blocks, what is left over, more than one of everything
SHAPES = [
    (8, 48, 16),
    (1, 1, 1),
    (3, 5, 600),
    (17, 65, 300),
    (100, 97, 513),
    (260, 200, 33),
    (519, 31, 257),
    (64, 400, 40),
]


def numbers(*shape: int, dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def operands(m: Matrices) -> tuple[np.ndarray, np.ndarray]:
    x = numbers(m.rows, m.depth, dtype=m.dtype.name)
    y = numbers(m.depth, m.columns, dtype=m.dtype.name, seed=1)
    return np.ascontiguousarray(x.T) if m.turned else x, y


def kernel_of(plan: Blocks) -> Kernel:
    return Kernel(build(plan), 2, 1, prod(plan.tiles), plan.threads)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("turned", [False, True], ids=["plain", "turned"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product(shape, turned, machine, monkeypatch):
    """Right to rounding; each tile writes what is its own, once, and nothing else."""
    monkeypatch.setattr(matrix, "WORTH_THREADS", 0)
    dtype = np.dtype("float64" if shape[0] % 2 and machine == "host" else "float32")
    rows, columns, depth = shape
    m = Matrices(rows, columns, depth, dtype, turned)
    x, y = operands(m)
    kernel = kernel_of(blocks_of(m, MACHINES[machine]))
    ranges = [(t, t + 1) for t in reversed(range(kernel.tiles))]
    side = "start" if machine == "wide" else "end"
    results = [((m.rows, m.columns), dtype)]
    (found,) = call_directly(kernel, [x, y], results, side, dtype.itemsize, ranges)
    (whole,) = call_directly(kernel, [x, y], results, side, dtype.itemsize)
    np.testing.assert_array_equal(found, whole)
    exact = (x.T if turned else x).astype(np.float64) @ y.astype(np.float64)
    bound = np.abs(x.T if turned else x) @ np.abs(y)
    assert (np.abs(found - exact) <= 4 * np.finfo(dtype).eps * bound + 1e-300).all()


def test_tiles_are_shared_out_evenly():
    machine = Machine(64, 2, frozenset(["avx512"]))
    f32 = np.dtype("float32")
    plain = blocks_of(Matrices(1600, 384, 128, f32, turned=False), machine)
    turned = blocks_of(Matrices(256, 768, 6400, f32, turned=True), machine)
    small = blocks_of(Matrices(100, 384, 128, f32, turned=False), machine)
    assert (plain.tiles, plain.tile_rows) == ((8, 1), 200)
    assert (turned.tiles, turned.tile_columns) == ((1, 4), 192)
    assert (small.tiles, small.threads) == ((1, 1), False)


HOW = {"precision": None, "preferred_element_type": None}


@pytest.mark.parametrize("contracted", [(1, 0), (0, 0), (1, 1), (0, 1)])
def test_in_a_program(contracted):
    """By the kernel where it is large enough, and the same along any dimensions."""
    x = jnp.asarray(numbers(128, 128, dtype="float32"))
    y = jnp.asarray(numbers(128, 128, dtype="float32", seed=1))
    by_us = jax.jit(lambda x, y: product(x, y, contracted, HOW))
    numbers_of = (((contracted[0],), (contracted[1],)), ((), ()))
    expected = lax.dot_general(x, y, numbers_of, precision="highest")
    np.testing.assert_allclose(by_us(x, y), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(product(x, y, contracted, HOW), expected, atol=1e-4)
    assert "onescan_" in by_us.lower(x, y).as_text()


@pytest.mark.parametrize(
    ("n", "dtype", "precision"),
    [
        (64, "float32", None),
        (128, "int32", None),
        (128, "bfloat16", None),
        (128, "float32", "BF16_BF16_F32"),
    ],
)
def test_left_to_xla(n, dtype, precision):
    """Small products, other types, and algorithms that were asked for."""
    x = jnp.ones((n, n), dtype)
    how = HOW | {"precision": precision and lax.DotAlgorithmPreset[precision]}
    text = jax.jit(lambda x: product(x, x, (1, 0), how)).lower(x).as_text()
    assert "dot_general" in text
    assert "onescan_" not in text


def test_in_the_gradient_of_a_loop():
    """A hoisted product, and the sums over time of two others."""
    w, u = (jnp.asarray(numbers(64, 64, dtype="float32", seed=s)) / 8 for s in (1, 2))
    xs = jnp.asarray(numbers(40, 8, 64, dtype="float32"))

    def loss(scan, w, u):
        step = lambda h, x: (jnp.tanh(x @ w + h @ u),) * 2
        _, hs = scan(step, jnp.zeros((8, 64)), xs)
        return (hs**2).sum()

    ours = jax.jit(jax.grad(lambda w, u: loss(onescan.scan, w, u), (0, 1)))
    stock = jax.grad(lambda w, u: loss(lax.scan, w, u), (0, 1))
    for a, b in zip(ours(w, u), stock(w, u), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
    text = ours.lower(w, u).as_text()
    assert text.count("dot_general") == text.count("stablehlo.transpose") == 0
    assert text.count("custom_call @onescan_") == 5
