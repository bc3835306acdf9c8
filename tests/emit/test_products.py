"""Products of a step: any sizes and dimensions, by whole vectors."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from jax import lax
from kernels import by_kernel, by_xla, inputs_of, loop_in
from sampling import pairs

import onescan
from onescan.plan.plan import Plan
from onescan.targets.cpu import current
from onescan.targets.cpu.machine import Machine, host
from onescan.targets.cpu.plan import choose

#: how operands are given: as they are multiplied, or with their last dimensions turned
WAYS = ["x @ y", "x @ y.T", "x.T @ y", "x.T @ y.T"]


def products(way: str) -> Any:
    """A step with one of them, from a carry that changes both."""
    left, right = way.split(" @ ")
    turned = lambda a, side: jnp.swapaxes(a, -1, -2) if ".T" in side else a

    def f(x: Any, y: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            made = turned(c[0], left) @ turned(c[1], right)
            return (c[0] * 0.9 + made.mean(), c[1] * 0.8), made

        return onescan.scan(step, (x, y), None, length=3)

    return f


def shapes(way: str, batch: tuple[int, ...], m: int, k: int, n: int) -> Any:
    left, right = way.split(" @ ")
    x = (k, m) if ".T" in left else (m, k)
    y = (n, k) if ".T" in right else (k, n)
    return (*batch, *x), (*batch, *y)


def arrays(*both: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(dtype) for shape in both]


@pytest.mark.parametrize(
    ("way", "batch", "sizes", "width"),
    pairs(
        WAYS,
        [(), (3,), (2, 2)],
        [(9, 20, 18), (16, 16, 16), (33, 17, 21), (8, 40, 50), (5, 7, 64), (40, 5, 3)],
        [64, 32, 16],
    ),
)
def test_odd_sizes(way: str, batch: Any, sizes: Any, width: int) -> None:
    loop = loop_in(products(way), *arrays(*shapes(way, batch, *sizes)))
    plan, inputs = choose(loop, Machine(width, 1)), inputs_of(loop)
    assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=512)


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool"])
@pytest.mark.parametrize("columns", [0, 1, 21])
@pytest.mark.parametrize("depth", [8, 19, 40])
def test_other_types(dtype: str, columns: int, depth: int) -> None:
    """Truth values too: sums across a vector gave whether an odd number is true."""
    rng = np.random.default_rng(1)
    y = (columns, depth) if columns else (depth,)
    both = [rng.integers(0, 2, shape).astype(dtype) for shape in ((12, depth), y)]
    numbers = (((1,), (len(y) - 1,)), ((), ()))

    def f(x: Any, y: Any) -> Any:
        turned = lambda c: jax.tree.map(lambda a: jnp.roll(a, 1), c)
        step = lambda c, _: (turned(c), lax.dot_general(*c, numbers))
        return onescan.scan(step, (x, y), None, length=9)

    with jax.enable_x64(True):
        with onescan.engine("native"):
            ours = f(*both)
        with onescan.engine("xla"):
            assert_same(ours, f(*both), rounding=64)


@pytest.mark.parametrize(
    ("way", "batch", "sizes"),
    [
        ("x @ y.T", (), (64, 40, 64)),
        ("x @ y.T", (), (100, 24, 100)),
        ("x @ y.T", (5,), (72, 40, 60)),
        ("x.T @ y", (5,), (40, 30, 1)),
    ],
)
def test_vectors_are_not_made_of_numbers(way: str, batch: Any, sizes: Any) -> None:
    """Products of odd sizes took up to six times as long as XLA's."""
    m, k, n = sizes
    loop = loop_in(products(way), *arrays(*shapes(way, batch, m, k, n)))
    plan: Plan = choose(loop, Machine(64, 1))
    profile = current().build(plan).profile
    assert profile is not None
    moves = ("insertelement", "extractelement")
    moved = sum(n for (what, _), n in profile.runs.items() if what in moves)
    multiplied = np.prod(batch, dtype=int) * m * k * n / 16
    assert moved / loop.length < 2.5 * multiplied


#: types of rows and matrices, how many rows, how they are converted and how often
CONVERTED = {
    "truths": ("bool", "float32", 16, "uitofp", 16 * 64),
    "bytes": ("int8", "float32", 16, "sitofp", 16 * 64),
    "halves": ("float16", "float16", 64, "fpext", 6 * 64 * 64),
}


@pytest.mark.parametrize("name", CONVERTED)
@pytest.mark.parametrize("constant", [True, False])
def test_operands_are_converted_once(name: str, constant: bool) -> None:
    """For each block of columns again, which took twice as long as XLA does."""
    kind, of_matrix, count, instruction, most = CONVERTED[name]
    rows = jnp.asarray(np.random.default_rng(0).integers(0, 2, (count, 64)), kind)
    matrices = jnp.ones((20, 64, 64), of_matrix) / 9

    def f(rows: Any, matrices: Any) -> Any:
        def step(rows: Any, matrix: Any) -> Any:
            matrix = matrices[3] if constant else matrix
            return (rows.astype(of_matrix) @ matrix > 1).astype(kind), rows[::-1]

        return onescan.scan(step, rows, None if constant else matrices, length=20)

    loop = loop_in(f, rows, matrices)
    inputs = inputs_of(loop)
    for width in (64, 32):
        plan = choose(loop, Machine(width, 1, host().features))
        assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=64)
        profile = current().build(plan).profile
        assert profile is not None
        converted = sum(
            n * int(re.match(r"<?(\d*)", kind)[1] or 1)  # type: ignore[index]
            for (what, kind), n in profile.runs.items()
            if what == instruction
        )
        assert converted <= 1.1 * most * loop.length
