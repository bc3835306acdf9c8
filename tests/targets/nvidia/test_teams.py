"""Blocks of a team, and warps of a block, that share sums: by threads of the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu_lowering import H200
from gpu_threads import run
from jax import lax
from passing import loop_of

from onescan.plan.plan import Grid
from onescan.targets.nvidia.target import Nvidia

TARGET = Nvidia(H200)
GRIDS = [(32, 1), (128, 1), (64, 2)]


def agree(step: Any, carry: Any, xs: Any, grid: tuple[int, int]) -> str:
    """Blocks of so many threads, in teams, have the results of stock; their code."""
    loop, args = loop_of(step, carry, xs)
    threads, team = grid
    plan = TARGET.plan(loop)
    plan = replace(plan, lanes=(), lane_of={}, grid=Grid(threads, True, team))
    kernel = TARGET.build(plan)
    found = run(plan, kernel, args)
    expected = jax.tree.leaves(lax.scan(step, carry, xs))
    for ours, stock in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, stock, 2e-5, 2e-5)
    return str(kernel.module)


def numbers(*shape: int, seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(drawn.astype(np.float32))


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("shape", [(2048,), (100, 30), (3, 1111)])
def test_long_sums(shape: tuple[int, ...], grid: tuple[int, int]) -> None:
    """One number, few numbers, and the greatest, of thousands."""

    def step(c: Any, x: Any) -> Any:
        rows = jnp.sum(jnp.tanh(c), -1)
        c = 0.9 * c + 0.01 * jnp.mean(c) - jnp.max(c) * x
        return c, (rows, jnp.min(c), jnp.argmax(c))

    agree(step, numbers(*shape), numbers(3, seed=1) * 0.01, grid)


@pytest.mark.parametrize("grid", GRIDS)
def test_sums_of_halves_are_rounded_once(grid: tuple[int, int]) -> None:
    step = lambda c, x: ((c * x).astype(c.dtype), jnp.sum(c, dtype=jnp.float32))
    agree(step, numbers(4096).astype(jnp.bfloat16), jnp.ones(2, jnp.bfloat16), grid)


@pytest.mark.parametrize("grid", GRIDS)
def test_training(grid: tuple[int, int]) -> None:
    """A gradient step: products whose operands both change."""

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w[0]) @ w[1] - x[:, :1]) ** 2)

    def step(w: Any, x: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(w, x)
        return jax.tree.map(lambda a, s: a - 0.1 * s, w, slopes), value

    agree(step, [numbers(6, 10), numbers(10, 1)], numbers(3, 8, 6), grid)
