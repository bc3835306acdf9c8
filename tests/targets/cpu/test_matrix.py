"""Products of matrices beside a loop: every shape, inside its buffers, any machine."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from guarded import call_directly
from jax import lax

import onescan
from onescan.passes.products import product
from onescan.targets.cpu.kernel import Kernel
from onescan.targets.cpu.machine import Machine, host
from onescan.targets.cpu.products import amx_gemm as by_tiles
from onescan.targets.cpu.products import amx_plan as stripes
from onescan.targets.cpu.products import gemm as by_vectors
from onescan.targets.cpu.products import plan as matrix
from onescan.targets.cpu.products.amx_plan import Stripes, stripes_of, suits
from onescan.targets.cpu.products.plan import Blocks, Matrices, blocks_of

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
    return np.ascontiguousarray(x.T) if m.transposed else x, y


def kernel_of(plan: Blocks | Stripes) -> Kernel:
    if isinstance(plan, Stripes):
        module = by_tiles.build(plan)
    else:
        module = by_vectors.build(plan)
    return Kernel(module, 2, 1, prod(plan.tiles), plan.threads, finished=True)


def value_of(plan: Blocks | Stripes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    m = plan.matrices
    results = [((m.rows, m.columns), m.dtype)]
    (found,) = call_directly(kernel_of(plan), [x, y], results, alignment=4)
    return found


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product(shape, transposed, machine, monkeypatch):
    """Right to rounding; each tile writes what is its own, once, and nothing else."""
    monkeypatch.setattr(matrix, "WORTH_THREADS", 0)
    dtype = np.dtype("float64" if shape[0] % 2 and machine == "host" else "float32")
    rows, columns, depth = shape
    m = Matrices(rows, columns, depth, dtype, transposed)
    check(blocks_of(m, MACHINES[machine]), "start" if machine == "wide" else "end")


def check(plan: Blocks | Stripes, side: Literal["start", "end"]) -> None:
    m, kernel = plan.matrices, kernel_of(plan)
    (x, y), dtype = operands(m), plan.matrices.dtype
    ranges = [(t, t + 1) for t in reversed(range(kernel.tiles))]
    results = [((m.rows, m.columns), dtype)]
    (found,) = call_directly(kernel, [x, y], results, side, dtype.itemsize, ranges)
    (whole,) = call_directly(kernel, [x, y], results, side, dtype.itemsize)
    np.testing.assert_array_equal(found, whole)
    exact, bound = exactly(m, x, y)
    assert (np.abs(found - exact) <= 4 * np.finfo(dtype).eps * bound + 1e-300).all()


def exactly(m: Matrices, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The product in float64, and that of the absolute values."""
    x, y = (x.T if m.transposed else x).astype(np.float64), y.astype(np.float64)
    return x @ y, np.abs(x) @ np.abs(y)


needs_tiles = pytest.mark.skipif(
    "amx" not in host().features, reason="the processor has no matrix unit"
)
F32 = np.dtype("float32")


@needs_tiles
@pytest.mark.parametrize("cores", [1, 2, 5])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("shape", [*SHAPES, (320, 64, 64), (40, 700, 300)], ids=str)
def test_product_by_tiles(shape, transposed, cores, monkeypatch):
    """The same by the matrix unit, with little room for what is kept."""
    monkeypatch.setattr(stripes, "WORTH_THREADS", 0)
    monkeypatch.setattr(stripes, "KEPT", 2 * 32 * 256 * 6)
    rows, columns, depth = shape
    m = Matrices(rows, columns, depth, F32, transposed)
    plan = stripes_of(m, Machine(64, cores, host().features))
    check(plan, "start" if cores == 2 else "end")


@needs_tiles
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
def test_tiles_do_not_change_results(transposed, monkeypatch):
    """Neither their number nor what is kept, also beside results that are NaN."""
    m = Matrices(200, 170, 600, F32, transposed)
    x, y = operands(m)
    y[3, 70] = np.nan
    one = value_of(stripes_of(m, Machine(64, 1, host().features)), x, y)
    monkeypatch.setattr(stripes, "WORTH_THREADS", 0)
    for cores in (2, 3, 7):
        plan = stripes_of(m, Machine(64, cores, host().features))
        assert prod(plan.tiles) > 1
        for keeps_x in (False, True):
            other = replace(plan, keeps_x=keeps_x, kept=32 * cores)
            np.testing.assert_array_equal(value_of(other, x, y), one)


@needs_tiles
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
def test_tiles_round_less(transposed):
    """Three pieces of a number are all of it: a product errs less than by vectors."""
    m = Matrices(256, 256, 512, F32, transposed)
    x, y = operands(m)
    exact, bound = exactly(m, x, y)
    errors = [
        np.abs(value_of(plan, x, y) - exact) / bound * 2**24
        for plan in (stripes_of(m, host()), blocks_of(m, host()))
    ]
    assert errors[0].max() < 2
    assert (errors[0] ** 2).mean() < (errors[1] ** 2).mean()


@needs_tiles
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("operand", ["x", "y"])
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38], ids=str)
def test_numbers_without_pieces(number, operand, transposed):
    """Infinities, NaN and the largest numbers are as float32 arithmetic has them."""
    m = Matrices(70, 90, 100, F32, transposed)
    x, y = (n / np.float32(4) for n in operands(m))
    place = (-1, -1) if operand == "x" else (5, -1)
    (x if operand == "x" else y)[place] = number
    found = value_of(stripes_of(m, host()), x, y)
    with np.errstate(all="ignore"):
        expected = (x.T if transposed else x) @ y
    assert np.isfinite(expected).all() == np.isfinite(number)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@needs_tiles
def test_products_that_are_too_large():
    """Their parts may be infinities of both signs, but they are not NaN."""
    m = Matrices(64, 64, 64, F32, transposed=False)
    x, y = operands(m)
    x, y = np.abs(x) * np.float32(1e25), np.abs(y) * np.float32(1e25)
    assert (value_of(stripes_of(m, host()), x, y) == np.inf).all()


@needs_tiles
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("size", [1e-36, 1e-38, 1e-40])
def test_tiny_numbers(size, transposed):
    """A piece that is no normal number may be lost, but nothing larger."""
    m = Matrices(64, 64, 300, F32, transposed)
    x, y = operands(m)
    x = (x * size).astype(np.float32)
    exact, bound = exactly(m, x, y)
    lost = 2.0**-126 * np.abs(y.astype(np.float64)).sum(0)
    error = np.abs(value_of(stripes_of(m, host()), x, y) - exact)
    assert (error <= 2**-22 * bound + lost).all()


def test_what_suits_tiles():
    """Large products of float32; not few rows, few columns or a short contraction."""
    machine = Machine(64, 2, frozenset(["avx512", "amx"]))
    for rows, columns, depth in ((6400, 768, 256), (256, 768, 6400), (512, 512, 1300)):
        m = Matrices(rows, columns, depth, F32, transposed=True)
        assert suits(m, machine)
        assert not suits(m, Machine(64, 2, frozenset(["avx512"])))
        assert not suits(replace(m, dtype=np.dtype("float64")), machine)
    for rows, columns, depth in ((16, 8192, 4096), (8192, 16, 4096), (8192, 8192, 8)):
        assert not suits(Matrices(rows, columns, depth, F32, transposed=False), machine)
    assert not suits(Matrices(1600, 384, 128, F32, transposed=False), machine)
    plain = stripes_of(Matrices(6400, 768, 256, F32, transposed=False), machine)
    transposed = stripes_of(Matrices(256, 768, 6400, F32, transposed=True), machine)
    assert (prod(plain.tiles) % 2, transposed.tiles) == (0, (1, 2))


def test_tiles_are_shared_out_evenly():
    machine = Machine(64, 2, frozenset(["avx512"]))
    plain = blocks_of(Matrices(1600, 384, 128, F32, transposed=False), machine)
    transposed = blocks_of(Matrices(256, 768, 6400, F32, transposed=True), machine)
    small = blocks_of(Matrices(100, 384, 128, F32, transposed=False), machine)
    assert (plain.tiles, plain.tile_rows) == ((8, 1), 200)
    assert (transposed.tiles, transposed.tile_columns) == ((1, 4), 192)
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
