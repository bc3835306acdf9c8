"""Blocks that have a part each of an axis, and add up: by threads of the CPU."""

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
from onescan.targets.nvidia import shared_out
from onescan.targets.nvidia.plan import choose
from onescan.targets.nvidia.target import Nvidia

TARGET = Nvidia(H200)


def agree(
    step: Any, carry: Any, xs: Any, team: int, tolerance: float = 2e-5, length: int = 3
) -> str:
    """A team of blocks of a warp has the results of stock; its code."""
    loop, args = loop_of(step, carry, xs, length=length)
    plan = choose(loop, H200, alone=False)
    assert plan.parallel is not None
    assert plan.grid is not None
    assert plan.grid.team == team
    plan = replace(plan, grid=Grid(32, together=True, team=team))
    kernel = TARGET.build(plan)
    found = run(plan, kernel, args)
    expected = jax.tree.leaves(lax.scan(step, carry, xs, length=length))
    for ours, stock in zip(found, expected, strict=True):
        want = np.asarray(stock, np.float64)
        np.testing.assert_allclose(ours.astype(np.float64), want, tolerance, tolerance)
    return str(kernel.module)


@pytest.fixture(autouse=True)
def _meeting_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_out, "MEETING", 0)


def numbers(*shape: int, seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(drawn.astype(np.float32))


@pytest.mark.parametrize("batch", [16, 12, 6])
def test_training(batch: int) -> None:
    """A gradient step: its batch is shared, its parameters are in every block."""

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w[0] + w[2]) @ w[1] - x[:, :1]) ** 2)

    def step(state: Any, x: Any) -> Any:
        w, m = state
        value, slopes = jax.value_and_grad(loss)(w, x)
        m = jax.tree.map(lambda a, s: 0.9 * a + s, m, slopes)
        return (jax.tree.map(lambda a, s: a - 0.1 * s, w, m), m), value

    w = [numbers(6, 10), numbers(10, 1), numbers(10)]
    team = {16: 8, 12: 4, 6: 2}[batch]
    agree(step, (w, jax.tree.map(jnp.zeros_like, w)), numbers(3, batch, 6), team)


def test_many_numbers_are_scattered() -> None:
    """More than every block sends to all others."""

    def step(w: Any, x: Any) -> Any:
        return w - 0.01 * (jax.nn.softmax(x @ w).T @ x).T, None

    agree(step, numbers(20, 17), numbers(3, 24, 20), 8)


def test_lanes_and_a_team() -> None:
    """Columns that need no others, of sums over rows: a team for each."""

    def step(w: Any, x: Any) -> Any:
        return w - 0.01 * (jnp.tanh(x @ w).T @ x).T, None

    agree(step, numbers(20, 17), numbers(3, 24, 20), 4)


def test_sums_of_all_kinds() -> None:
    def step(c: Any, x: Any) -> Any:
        soft = jax.nn.softmax(c, 0)
        c = 0.5 * jnp.tanh(c) + soft * x - 0.1 * jnp.min(c, 0) / (1 + jnp.max(c))
        signs = jnp.all(c > -9, 0), jnp.any(c > 0.5), jnp.sum(c > 0)
        return c, (signs, jnp.prod(1 + 0.01 * c), c.mean(0), c)

    agree(step, numbers(32, 5), numbers(3, 5), 8)


def test_sums_of_sums_and_branches() -> None:
    """Blocks that wait for one sum to make the next, and choose alike."""

    def step(c: Any, x: Any) -> Any:
        centred = c - c.mean(0)
        scaled = centred / jnp.sqrt(1e-3 + (centred**2).mean(0))
        total = jnp.mean(jnp.cos(scaled) * x)  # of `scaled` itself it is 0
        c = lax.cond(total > 0, lambda v: v * 0.9, lambda v: v * 0.8 + total, scaled)
        grown = lax.fori_loop(0, 2, lambda _, v: jnp.sin(v) + total, c)
        return grown, (total, grown[:, 0])

    agree(step, numbers(16, 3), numbers(3, 3), 8)


def test_axes_of_one_size_are_shared_side_by_side() -> None:
    """Two arrays that meet in nothing but sums: a block has a part of each."""

    def step(state: Any, x: Any) -> Any:
        a, b = state
        mean, most = a.mean(0), (b * x[:, None]).sum(0)
        a = jnp.tanh(a + 0.1 * most)
        b = jnp.sin(b * mean + x[:, None])
        return (a, b), (a[:, 0], most)

    carry, xs = (numbers(32, 3), numbers(32, 3)), numbers(3, 32)
    agree(step, carry, xs, 8)
    loop, _ = loop_of(step, carry, xs)
    plan = choose(loop, H200, alone=False)
    shapes = {plan.local_shape(v) for v in loop.body.jaxpr.invars}
    assert shapes == {(4, 3), (4,)}  # of 32 rows


def test_rounds_of_each_block() -> None:
    """Loops inside a step that take longer for some blocks than for others."""

    def step(c: Any, x: Any) -> Any:
        def halve(v: Any) -> Any:
            return lax.while_loop(lambda v: v > 1, lambda v: v * 0.5, v)

        total = jnp.sum(c)
        c = jax.vmap(halve)(jnp.abs(c) * 3 + total * 0 + x)
        return c, jnp.sum(c) + total

    agree(step, numbers(32) * 5, numbers(3), 8)


def test_sums_of_halves_are_rounded_once() -> None:
    def step(c: Any, x: Any) -> Any:
        return (c * x).astype(c.dtype), (jnp.sum(c), jnp.sum(c, dtype=jnp.float32))

    start = jnp.abs(numbers(64)).astype(jnp.bfloat16)
    agree(step, start, jnp.ones(3, jnp.bfloat16), 8, 4e-3)


def test_positions_are_counted_through_all_blocks() -> None:
    def step(c: Any, x: Any) -> Any:
        where = lax.broadcasted_iota(jnp.float32, c.shape, 0)
        return c + 0.1 * where * x, jnp.sum(c * where, 0)

    agree(step, numbers(16, 2), numbers(3), 8)


def test_a_batch_has_a_team_for_each() -> None:
    def step(c: Any, x: Any) -> Any:
        c = jnp.tanh(c * x + jnp.mean(c, 1, keepdims=True))
        return c, jnp.sum(c, 1)

    agree(step, numbers(3, 3000), numbers(3), 8)


def states(c: Any, x: Any) -> Any:
    """The gradient of a state of outer products, of each of a batch, as GLA has it."""
    q, k, v = x
    grown = c + q[:, :, None] * k[:, None, :]
    gates = jnp.sum(grown * c, 2), jnp.einsum("bij,bj->bi", grown, k)
    return grown * v[:, :, None], (gates, jnp.einsum("bij,bi->bj", grown, q))


def test_states_of_outer_products() -> None:
    xs = tuple(numbers(3, 2, 16, seed=k) * 0.3 for k in range(3))
    agree(states, numbers(2, 16, 16), xs, 8)


def test_a_team_where_one_block_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known by its kernel, where operations alone do not say so."""
    monkeypatch.setattr(shared_out, "MEETING", 400_000)
    loop, _ = loop_of(states, numbers(8, 128, 128), (numbers(9, 8, 128),) * 3)
    plan = TARGET.plan(loop)
    assert plan.parallel is None
    plan, kernel = TARGET.verified(*TARGET.fitting(plan))
    assert plan.parallel is not None
    assert (kernel.blocks, kernel.team) == (8, 8)


def test_what_mixes_positions_is_not_shared() -> None:
    step = lambda c, x: (jnp.cumsum(c) * x + jnp.sum(c), None)
    loop, _ = loop_of(step, numbers(64), numbers(3))
    assert choose(loop, H200, alone=False).parallel is None
