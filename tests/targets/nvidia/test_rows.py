"""Teams that share the rows of a grid, run by threads of the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu_lowering import H200, as_if_on, lowered
from gpu_threads import run
from jax import lax
from passing import loop_of
from ptx_text import assemble, assembler, count, time_loop
from stencil_bodies import BODIES, gray_scott, grid, neighbours, roll

import onescan
from onescan.passes.borders import borders
from onescan.passes.windows import windows
from onescan.plan.halo import rows_of
from onescan.plan.plan import Grid
from onescan.targets.nvidia.target import Nvidia

TARGET = Nvidia(H200)
#: bodies whose rows need other rows than those nearby, or sums over them
WHOLE = {"mean", "transposed", "turned"}


def planned(body: Any, carry: Any, xs: Any = None, **options: Any) -> Any:
    loop, args = loop_of(body, carry, xs, **options)
    for rewrite in (windows, borders):
        if (split := rewrite(loop)) is not None:
            loop = split.loop
    return TARGET.plan(loop), args


def agree(
    body: Any, carry: Any, xs: Any = None, team: int = 4, length: int | None = 3
) -> None:
    """A kernel of so many blocks of a warp has the results of stock JAX."""
    plan, args = planned(body, carry, xs, length=length)
    assert plan.rows is not None
    assert team == 1 or plan.rows.halo <= plan.rows.count // team
    plan = replace(plan, grid=Grid(32, together=True, team=team))
    found = run(plan, TARGET.build(plan), args)
    expected = jax.tree.leaves(lax.scan(body, carry, xs, length=length))
    for ours, stock in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, stock, 1e-5, 1e-5)


@pytest.mark.parametrize("name", sorted(set(BODIES) - WHOLE))
def test_results_are_those_of_stock(name):
    body = BODIES[name]
    small = name in ("far",)  # looks further than a block of a larger team has rows
    step = lambda x, _: (0.5 * x + 0.1 * body(x), None)
    agree(step, grid(40, 36), team=2 if small else 4)


@pytest.mark.parametrize("team", [1, 2, 8])
def test_every_team(team):
    agree(gray_scott, (grid(32, 40), grid(32, 40, seed=1)), team=team)


def test_xs_ys_and_small_carries():
    def body(carry, x):
        u, v, count = carry
        u, v = v, u + 0.1 * neighbours(v) * count + x[0]
        return (u, v, count + x[1]), (u, count, roll(v, 1, 0))

    carry = grid(32, 36), grid(32, 36, seed=1), jnp.float32(0)
    xs = 0.01 * grid(5, 32, 36, seed=2), grid(5, seed=3)
    agree(body, carry, xs, length=None)


def test_a_batch_has_a_team_for_each():
    body = lambda x, _: (0.5 * x + 0.1 * neighbours(x[0])[None], None)
    batched = jax.vmap(lambda x: lax.scan(body, x[None], None, length=3)[0])
    x = grid(3, 32, 36)

    def step(x, _):
        return jax.vmap(lambda x: 0.5 * x + 0.1 * neighbours(x))(x), None

    plan, args = planned(step, x, length=3)
    assert plan.tiles == 3
    plan = replace(plan, grid=Grid(32, together=True, team=2))
    (found,) = run(plan, TARGET.build(plan), args)
    np.testing.assert_allclose(found, batched(x)[:, 0], 1e-5)


def test_rows_that_are_asked_for_and_not_used_are_not_read():
    """The first and the last row are pulled by all blocks, and chosen by two."""
    body = BODIES["edges"]
    agree(lambda x, _: (0.5 * x + 0.1 * body(x), None), grid(128, 32), length=2)


def test_what_many_need_is_put_away_in_rows():
    def body(x, _):
        y = jnp.tanh(jnp.exp(x) * jnp.sin(x))
        return 0.5 * x + 0.1 * neighbours(y) + 0.1 * neighbours(neighbours(y)), None

    plan, _ = planned(body, grid(40, 36), length=3)
    assert len(plan.rows.stored) == 1
    assert plan.rows.halo == 2
    agree(body, grid(40, 36))


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_bodies_that_need_all_rows_are_planned_otherwise(name):
    body = BODIES[name]
    plan, _ = planned(lambda x, _: (0.5 * x + body(x), None), grid(40, 36), length=3)
    assert plan.rows is None


def halo_of(body: Any) -> int | None:
    loop, _ = loop_of(lambda x, _: (body(x), None), grid(64, 32), None, length=3)
    rows = rows_of(loop, [])
    return None if rows is None else rows.halo


def test_halos():
    assert halo_of(lambda x: roll(x, 1, 0) + roll(x, -1, 0)) == 1
    assert halo_of(lambda x: roll(x, 5, 1)) == 0
    assert halo_of(lambda x: roll(roll(x, 2, 0), 1, 0) - roll(x, -1, 0)) == 3
    assert halo_of(lambda x: roll(x, 63, 0)) == 1  # around the end
    assert halo_of(lambda x: jnp.pad(x, 2, mode="wrap")[:64, 2:34]) == 2
    # what a slice drops is counted too
    assert halo_of(lambda x: jnp.pad(x, 2, mode="edge")[:64, 2:34]) == 4
    assert halo_of(lambda x: x + x[:1] + roll(x, 1, 0)) == 32  # the first row
    assert halo_of(lambda x: jnp.flip(x, 0) + x) is None
    assert halo_of(lambda x: x + x.sum(0)) is None


def test_the_gradient_of_a_roll_looks_as_far():
    gradient = lambda x: jax.grad(lambda y: (y * roll(y, 2, 0)).sum())(x)
    assert halo_of(gradient) == 2


def test_one_barrier_a_step_and_nothing_put_away(tmp_path):
    carry = grid(128, 128), grid(128, 128, seed=1)
    with as_if_on(H200) as launches:
        lowered(lambda c: onescan.scan(gray_scott, c, None, length=300), carry)
    (launch,) = launches
    assert (launch.blocks, launch.team) == (1, 8)
    assert launch.shared == 2 * 2 * (16 + 2) * 128 * 4
    step = time_loop(launch.code)
    assert count("barrier.cluster.wait", step) == 1
    assert "ld.global" not in step
    if assembler() is not None:
        assemble(launch.code, 90, tmp_path)
