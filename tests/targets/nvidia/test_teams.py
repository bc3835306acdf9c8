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


@pytest.mark.parametrize("grid", GRIDS)
def test_updates_of_rows(grid: tuple[int, int]) -> None:
    """Threads share what cannot meet; what can comes in order."""

    def step(c: Any, x: Any) -> Any:
        ring, counts = c
        at = (jnp.abs(x[0]) * 50).astype(jnp.int32) % 7
        ring = ring.at[at].set(jnp.tanh(ring[at - 1] + x))
        places = jnp.stack([at, at, 6 - at])
        counts = counts.at[places].add(x[:3, None] * jnp.ones(33))
        counts = counts.at[places, :2].set(x[:6].reshape(3, 2))
        return (ring, counts), jnp.sum(counts)

    start = numbers(7, 96), jnp.zeros((7, 33))
    agree(step, start, numbers(4, 96, seed=1), grid)


def test_a_row_is_written_by_all_threads() -> None:
    step = lambda c, x: (c.at[x].set(jnp.tanh(c[x - 1])), None)
    loop, _ = loop_of(step, numbers(8, 128), jnp.arange(8, dtype=jnp.int32))
    plan = replace(TARGET.plan(loop), lanes=(), lane_of={}, grid=Grid(64, True))
    kernel = TARGET.build(plan)
    (tanh,) = (e for e in loop.body.jaxpr.eqns if e.primitive.name == "tanh")
    assert kernel.profile is not None
    assert kernel.profile.elements[id(tanh)] == loop.length * 128 / 64
