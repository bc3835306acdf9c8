"""Bodies in which the positions of a large grid look at their neighbours."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from kernels import loop_in
from passing import loop_of
from stencil_bodies import BODIES, gray_scott, grid, neighbours, roll

import onescan
from onescan.plan.lanes import lane_axes
from onescan.plan.merged import merged
from onescan.plan.stencils import again, is_stencil, ways
from onescan.plan.verify import verify
from onescan.targets.cpu.machine import Machine
from onescan.targets.cpu.target import Cpu

HOST = Machine(32, cores=2)


def agree(body: Any, carry: Any, xs: Any = None, length: int | None = 4) -> None:
    """One kernel, with the results of XLA."""
    runs = []
    for engine in ("native", "xla"):
        with onescan.engine(engine):
            run = jax.jit(lambda c, x: onescan.scan(body, c, x, length=length))
            runs.append(run(carry, xs))
    for ours, stock in zip(*map(jax.tree.leaves, runs), strict=True):
        exact = not jnp.issubdtype(ours.dtype, jnp.floating)
        close = 0 if exact else 40 * float(jnp.finfo(ours.dtype).eps)
        np.testing.assert_allclose(
            np.asarray(ours, np.float64), np.asarray(stock, np.float64), close, close
        )


@pytest.mark.parametrize("name", BODIES)
def test_results_are_those_of_xla(name):
    body = BODIES[name]
    agree(lambda x, _: (0.5 * x + 0.1 * body(x), None), grid(37, 45))


@pytest.mark.parametrize("shape", [(1030,), (1024,), (33, 32), (9, 11, 21), (64, 17)])
def test_every_rank_and_rest_of_a_row(shape):
    agree(lambda x, _: (0.5 * x + 0.1 * neighbours(x), None), grid(*shape))


@pytest.mark.parametrize("dtype", ["int32", "bool", "bfloat16", "float64", "int8"])
def test_every_type(dtype):
    with jax.enable_x64(True):
        agree(
            lambda x, _: (jnp.where(x > roll(x, 1, 0), x, roll(x, -1, 1)), None),
            grid(40, 40, dtype=np.int32).astype(dtype),
        )


def test_several_carries_xs_ys_and_small_ones():
    def body(carry, x):
        u, v, count = carry
        u, v = v, u + 0.1 * neighbours(v) * count + x
        return (u, v, count + 1), (u, u.sum(), roll(v, 1, 0)[3], count)

    carry = grid(33, 40), grid(33, 40, seed=1), jnp.float32(0)
    agree(body, carry, 0.01 * grid(5, 33, 40, seed=2), None)


def test_a_batch_runs_by_threads():
    def run(x):
        body = lambda x, _: (0.5 * x + 0.1 * neighbours(x), x.sum())
        return onescan.scan(body, x, None, length=40)

    x = grid(6, 34, 40)
    with onescan.engine("native"):
        ours = jax.jit(jax.vmap(run))(x)
    with onescan.engine("xla"):
        stock = jax.jit(jax.vmap(run))(x)
    for a, b in zip(ours, stock, strict=True):
        np.testing.assert_allclose(a, b, 2e-5, 2e-5)


def test_a_grid_larger_than_the_stack():
    agree(lambda x, _: (0.5 * x + 0.1 * neighbours(x), None), grid(300, 320), length=3)


def kernel_of(body: Any, *carry: Any) -> tuple[Any, str]:
    loop, _ = loop_of(body, carry, None, length=20)
    target = Cpu(HOST)
    plan = target.plan(loop)
    return plan, str(target.build(plan).module)


def test_a_step_is_one_walk_that_writes_nothing_but_carries():
    plan, text = kernel_of(gray_scott, grid(64, 64), grid(64, 64, seed=1))
    assert plan.stencil
    places = re.findall(r"alloca \[(\d+) x float\]", text)
    assert places == [str(2 * 64 * 64)] * 2  # two places of each carry
    step = text[text.index("loop") :]
    assert "insertelement <8 x float> poison" not in step  # no vector number by number


PATCHES = {
    "a row": lambda x: jnp.sin(x * 0.9).at[3].set(jnp.tanh(x[3])),
    "the last row": lambda x: jnp.sin(x * 0.9).at[-1].set(jnp.tanh(x[0])),
    "rows": lambda x: jnp.concatenate([jnp.sin(x[:7]), jnp.tanh(x[7:30]), x[30:]]),
    "a row and a column": lambda x: (
        jnp.sin(x).at[5].set(jnp.tanh(x[4])).at[:, 9].set(jnp.exp(-jnp.abs(x[:, 8])))
    ),
    "a part": lambda x: (
        jnp.sin(x)
        .at[5:9, 3:21]
        .set(jnp.tanh(x[6:10, 2:20]) + jnp.exp(-(x[:4, :18] ** 2)))
    ),
    "turned": lambda x: jnp.sin(x).at[2].set(jnp.tanh(x[1]))[::-1] * 0.5,
    "planes": lambda x: (
        jnp.sin(x.reshape(8, 5, 45)).at[2, 1].set(jnp.tanh(x[0])).reshape(40, 45)
    ),
}


@pytest.mark.parametrize("name", PATCHES)
def test_pieces_that_cost_much_are_walked_one_by_one(name):
    shape = (40, 45) if name == "planes" else (50, 45)
    agree(lambda x, _: (PATCHES[name](x) * 0.99, None), grid(*shape))


def test_no_piece_is_computed_where_another_is():
    def body(x, _):
        y = roll(x, 1, 1) + roll(x, 1, 0)
        return jnp.concatenate([jnp.sin(y[:7]), jnp.tanh(y[7:30]), y[30:]]), None

    agree(body, grid(64, 64))
    loop, _ = loop_of(body, grid(64, 64), None, length=9)
    target = Cpu(HOST)
    plan = target.plan(loop)
    assert plan.stencil
    assert verify(plan.loop, target.build(plan).profile).is_good


def test_what_is_no_stencil():
    def no_stencil(body: Any, carry: Any) -> bool:
        loop, _ = loop_of(body, carry, None, length=20)
        return not is_stencil(loop, 8, merged(lane_axes(loop), loop))

    x = grid(64, 64)
    assert not no_stencil(lambda x, _: (neighbours(x), None), x)
    assert no_stencil(lambda x, _: (x * 2, None), x)  # all are lanes
    assert no_stencil(lambda x, _: (neighbours(x), None), grid(20, 20))  # small
    assert no_stencil(lambda x, _: (roll(x, 1, 0), None), x)  # columns are lanes
    product = lambda x, _: (jnp.concatenate([x, x], 1) @ jnp.ones((128, 64)), None)
    assert no_stencil(product, x)  # a product reads it whole


def test_ways_count_rolls_as_one_and_results_together():
    def body(x, _):
        y = x * 3
        z = y * y
        return (roll(y, 1, 0) + z, None)

    loop, _ = loop_of(body, grid(64, 64), None, length=20)
    jaxpr = loop.body.jaxpr
    y = next(e.outvars[0] for e in jaxpr.eqns if e.primitive.name == "mul")
    assert len(ways(jaxpr)[y]) == 2
    assert again(jaxpr)[y] == 1


def test_what_is_read_twice_is_stored_only_where_that_is_faster():
    """The differences in a gradient of them are two operations, and lie in no cache."""

    def step(x, _):
        squares = lambda x: sum(jnp.sum(jnp.diff(x, axis=i) ** 2) for i in range(3))
        return x - 0.05 * jax.grad(squares)(x), None

    target = Cpu(HOST)
    loop = loop_in(lambda x: lax.scan(step, x, None, 5), jnp.ones((48, 48, 48)))
    plan, _ = target.verified(*target.fitting(target.plan(loop)))
    assert plan.stencil
    assert not plan.stored
