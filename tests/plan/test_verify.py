"""Plans do no work twice: lanes, tiles and vectors, and what a kernel computes."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from engines import run
from jax import lax
from kernels import kernel_of, loop_in, plan_of

import onescan
from onescan.emit.support import require_supported
from onescan.loop import LeaveToXla
from onescan.plan.verify import verify
from onescan.targets.cpu import current

scan = onescan.scan


def verified(plan):
    return current().verified(plan, kernel_of(plan))


def assert_agree(f, *args):
    both = (jax.tree.leaves(run(engine, f, *args)) for engine in ("native", "xla"))
    for ours, xla in zip(*both, strict=True):
        np.testing.assert_allclose(ours, xla, rtol=2e-5, atol=1e-5)


LANES = jnp.linspace(0.1, 0.9, 4096)
POINTS = jnp.linspace(0.1, 0.9, 192).reshape(64, 3)
MATRIX = jnp.linspace(-1.0, 1.0, 256 * 128).reshape(256, 128)


def constant_output(c, x):
    """The constants lie along an axis of their own."""
    return jnp.sin(c) + x, (c, jnp.full(c.shape, 1.0), jnp.zeros((4096, 16)))


def of_xs_alone(c, x):
    """A y that has nothing to do with the carry, nor with its lanes."""
    return jnp.sin(c) + x, jnp.cos(jnp.arange(200.0) * x)


def carry_and_output(c, x):
    """What is carried on and stacked is computed once."""
    c = jnp.tanh(c + x)
    return c, c


def coupled(c, x):
    """No lanes, and a last dimension that fills no vector."""
    return jnp.tanh(c - c.mean(0) + x), c.sum()


def shared(c, x):
    """Much that all lanes share."""
    common = jnp.tanh(jnp.arange(128.0) * x)
    return c * 0.9 + common, common.sum()


def spread(c, x):
    """A value of each row, spread over the columns."""
    return jnp.sin(c[:, :1] * x) * c, None


BODIES = [
    (constant_output, LANES),
    (of_xs_alone, LANES),
    (carry_and_output, LANES),
    (coupled, POINTS),
    (shared, MATRIX),
    (spread, MATRIX),
]


@pytest.mark.parametrize(
    ("body", "init"), BODIES, ids=lambda v: getattr(v, "__name__", "")
)
def test_no_work_twice(body, init):
    xs = jnp.linspace(0.0, 1.0, 20)
    loop = loop_in(lambda c, x: lax.scan(body, c, x), init, xs)
    plan, kernel = verified(plan_of(loop))
    assert verify(plan.loop, kernel.profile).ratio <= 1.3
    assert_agree(lambda c, x: scan(body, c, x), init, xs)


@pytest.mark.parametrize("name", CASES)
def test_no_work_twice_in_the_table(name):
    f, init, xs, kwargs = CASES[name].problem()
    try:
        loop = loop_in(lambda init, xs: lax.scan(f, init, xs, **kwargs), init, xs)
        require_supported(loop)
        plan, kernel = verified(plan_of(loop))
    except (LeaveToXla, StopIteration):
        pytest.skip("no kernel")
    assert verify(plan.loop, kernel.profile).ratio <= 2.0


def test_the_check_can_fail():
    """With an axis of its own for each constant, every tile does everything."""
    xs = jnp.zeros(20)
    loop = loop_in(lambda c, x: lax.scan(carry_and_output, c, x), LANES, xs)
    plan = plan_of(loop)
    kernel = kernel_of(plan)
    often = replace(kernel.profile, tiles=kernel.profile.tiles * 5)
    verdict = verify(loop, often)
    assert verdict.ratio == pytest.approx(5, rel=0.3)
    assert not verdict.is_good
    assert verdict.repeated[0].eqn.primitive.name == "tanh"


def test_axes_side_by_side_are_one():
    def body(carry, x):
        a, b = carry
        return (jnp.sin(a) + x, b * 0.5 - x), a.sum() * 0

    def independent(carry, x):
        a, b = carry
        return (jnp.sin(a) + x, b * 0.5 - x), None

    init = jnp.ones(512), jnp.ones(512)
    loop = loop_in(lambda c, x: lax.scan(independent, c, x), init, jnp.ones(5))
    (lane,) = [lane for lane in plan_of(loop).lanes if lane.size > 1]
    assert lane.size == 512
    assert_agree(lambda c, x: scan(independent, c, x), init, jnp.ones(5))
    assert_agree(lambda c, x: scan(body, c, x), init, jnp.ones(5))


def test_vectors_across_a_short_dimension():
    """Points in space: vectors lie along the points, not along x, y, z."""
    loop = loop_in(lambda c, x: lax.scan(coupled, c, x), POINTS, jnp.ones(5))
    plan = plan_of(loop)
    assert not plan.lanes
    assert plan.minor((64, 3)) == (0 if plan.width <= 64 else 1)
    assert plan.minor((3, 64)) == 1
    assert plan.minor((2, 3)) == 1
    text = str(kernel_of(plan).module)
    assert f"x float> @llvm.fma.v{plan.width}f32" in text or "x float>" in text
    ys = np.ones((7, 33, 2), np.float32)
    assert_agree(
        lambda c, x: scan(lambda c, x: (c * x + c.max(), x - c), c, x),
        jnp.ones((33, 2)),
        jnp.asarray(ys),
    )


def key_for_all(c, x):
    """A draw that all lanes share, number by number: half the time of a step."""
    key, lanes = c
    key, here = jax.random.split(key)
    return (key, jnp.tanh(lanes + x) + jax.random.normal(here)), None


def beside_few_lanes(c, x):
    """Three lanes that do next to nothing, beside a carry that has none."""
    sums = jnp.cumsum(c, 1)
    return jnp.tanh(jnp.exp(-c * c) + sums), jnp.linspace(0.0, 1.0, 3) * x


@pytest.mark.parametrize(
    ("step", "init", "tiles"),
    [
        (key_for_all, (jax.random.key_data(jax.random.key(0)), LANES[:2048]), 2),
        (beside_few_lanes, jnp.ones((1, 3)), 1),
    ],
    ids=["key for all", "beside few lanes"],
)
def test_tiles_do_not_repeat_what_lanes_share(step, init, tiles):
    loop = loop_in(lambda c, x: lax.scan(step, c, x), init, jnp.ones(20))
    assert plan_of(loop).tiles <= tiles
