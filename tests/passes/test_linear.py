"""Linear recurrences solved in chunks of time: which, how, and that they agree."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from passing import (
    assert_same,
    core_of,
    loop_of,
    notes_of,
    outside,
    shown,
    splits_of,
    stock_run,
)
from sampling import examples, pairs

import onescan
from onescan.passes import PARALLEL_PASSES, WIDE_PASSES, worth
from onescan.passes.linear import linear
from onescan.passes.recurrences import last_ones, recurrences
from onescan.passes.simplify import simplify
from onescan.passes.split import parts_of, run
from onescan.targets.cpu.target import Cpu


def normal(key, *shape):
    return jax.random.normal(jax.random.key(key), shape, dtype=float)


def found(step, init, xs):
    loop, _ = loop_of(step, init, xs)
    return [(r.place, r.factor) for r in recurrences(parts_of(loop))]


def smoothed(c, x):
    return c * 0.9 + 0.1 * x, c


def added(c, x):
    return c + jnp.sin(x), None


def subtracted(c, x):
    return c - x, c * c


def divided(c, x):
    return (x - c) / (2.0 + x * x), c


def chosen(c, x):
    return jnp.where(x > 1.0, x, 0.5 * c + x), c


def delayed(c, x):
    return jnp.sin(x), c + x


def squared(c, x):
    return c * c + x, None


def through_sine(c, x):
    return jnp.sin(c) + x, None


def chosen_by_itself(c, x):
    return jnp.where(c > 1.0, 0.0, c + x), None


def mixed(c, x):
    return jnp.roll(c, 1) + x, None


def summed(c, x):
    return c + jnp.sum(c) + x, None


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        (smoothed, "some"),
        (added, "one"),
        (subtracted, "one"),
        (divided, "some"),
        (chosen, "some"),
        (delayed, "none"),
        (squared, None),
        (through_sine, None),
        (chosen_by_itself, None),
        (mixed, None),
        (summed, None),
    ],
)
def test_what_is_a_linear_recurrence(step, factor):
    expected = [] if factor is None else [(0, factor)]
    assert found(step, jnp.zeros(3), jnp.ones((5, 3))) == expected


def test_halves_and_integers_are_not_looked_at():
    for dtype in (jnp.bfloat16, jnp.float16, jnp.int32):
        zeros = jnp.zeros(3, dtype)
        assert found(lambda c, x: (c + x, c), zeros, jnp.ones((5, 3), dtype)) == []


def test_carries_that_read_each_other_are_not_alone():
    def rotation(carry, x):
        a, b = carry
        return (0.6 * a - 0.8 * b + x, 0.8 * a + 0.6 * b), None

    assert found(rotation, (0.0, 1.0), jnp.ones(5)) == []


def cascade(carry, x):
    """The first feeds the second, the second feeds the third, which is no line."""
    a, b, c = carry
    return (0.5 * a + x, 0.9 * b + a, jnp.sin(c + b)), b


def test_recurrences_come_after_those_they_read():
    loop, _ = loop_of(cascade, (0.0, 0.0, 0.0), jnp.ones(5))
    parts = parts_of(loop)
    every = recurrences(parts)
    assert [(r.place, r.factor) for r in every] == [(0, "some"), (1, "some")]
    assert last_ones(parts, every) == []  # the third reads the second


def test_the_parallel_form():
    loop, args = loop_of(smoothed, jnp.zeros(3), jnp.ones((12, 3)))
    splits = splits_of(loop, partial(linear, chunks=4), simplify)
    assert shown(core_of(splits).body) == ["in  ", "out "]
    around = outside(splits, args)
    assert around[:12] == [
        "in  a:float32[3] b:float32[12,3]",
        "c:float32[4,3,3] = reshape b",
        "d:float32[3,4,3] = transpose c",
        "e:float32[4,3] = broadcast_in_dim 0.0",
        "f:float32[4,3] = broadcast_in_dim 1.0",
        "g:float32[4,3] h:float32[4,3] i:float32[3,4,3] j:float32[3,4,3] = scan e f d",
        "k:float32[3] l:float32[4,3] = scan a g h",
        "m:float32[1,4,3] = broadcast_in_dim l",
        "n:float32[3,4,3] = mul j m",
        "o:float32[3,4,3] = add n i",
        "p:float32[4,3,3] = transpose o",
        "q:float32[12,3] = reshape p",
    ]
    assert sum(" = cond " in line for line in around) == 1
    assert notes_of(splits[0]) == [
        "ran c' = a*c + b (test_linear.py:0) as a parallel scan of 4 chunks",
    ]
    assert_same(loop, splits, args)


STEPS = [smoothed, added, subtracted, divided, chosen, delayed]


@pytest.mark.parametrize(
    ("step", "length", "reverse", "shape"),
    pairs(STEPS[:5], [1, 7, 12, 100], [False, True], [(), (3,), (2, 3)]),
)
def test_it_agrees_with_the_loop(step, length, reverse, shape):
    with jax.enable_x64(True):
        xs = normal(1, length, *shape)
        loop, args = loop_of(step, normal(0, *shape), xs, reverse=reverse)
        splits = splits_of(loop, partial(linear, chunks=4), simplify)
        assert core_of(splits).num_carry == 0
        assert_same(loop, splits, args, tolerance=1e-10)


def advantages(carry, x):
    """GAE, with the next step's value in the carry."""
    gae, next_value = carry
    reward, value, done = x
    delta = reward + 0.99 * next_value * (1 - done) - value
    gae = delta + 0.95 * 0.99 * (1 - done) * gae
    return (gae, value), (gae, gae + value)


def test_several_carries_and_resets():
    with jax.enable_x64(True):
        xs = normal(0, 300, 4), normal(1, 300, 4), (normal(2, 300, 4) > 1) * 1.0
        init = jnp.zeros(4), normal(3, 4)
        loop, args = loop_of(advantages, init, xs, reverse=True)
        splits = splits_of(loop, partial(linear, chunks=16), simplify)
        assert core_of(splits).num_carry == 0
        assert_same(loop, splits, args, tolerance=1e-10)


@pytest.mark.parametrize("reverse", [False, True])
def test_part_of_a_larger_body(reverse):
    """The coefficients come from a carry that stays; ys read both."""

    def step(carry, x):
        h, c, d = carry
        h = jnp.tanh(h + x)
        c = jax.nn.sigmoid(h) * c + h * x
        d = 0.5 * d + c
        return (h, c, d), (h, c * x, d + carry[1], x)

    with jax.enable_x64(True):
        init = normal(0, 3), normal(1, 3), normal(2, 3)
        loop, args = loop_of(step, init, normal(3, 50, 3), reverse=reverse)
        splits = splits_of(loop, partial(linear, chunks=8), simplify)
        assert core_of(splits).num_carry == 1
        assert_same(loop, splits, args, tolerance=1e-10)


def test_complex_numbers():
    def step(c, x):
        return jnp.complex64(0.6 + 0.7j) * c + x, c.real

    loop, args = loop_of(step, jnp.zeros(3, jnp.complex64), jnp.ones((40, 3)))
    splits = splits_of(loop, partial(linear, chunks=4), simplify)
    ours, stock = run(splits, lambda *args: [], args), stock_run(loop, *args)
    for a, b in zip(ours, stock, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def growing(c, x):
    return 2.0 * c + x, c


def test_growth_is_left_to_the_loop():
    """From zero, each chunk would be -2**size: the sum of the two parts is lost."""
    loop, args = loop_of(growing, jnp.ones(2), -jnp.ones((100, 2)))
    splits = splits_of(loop, partial(linear, chunks=2), simplify)
    ours, stock = run(splits, lambda *args: [], args), stock_run(loop, *args)
    for a, b in zip(ours, stock, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.all(a == 1)


SPECIAL = st.sampled_from([0.0, 1.0, -2.0, 1e30, jnp.inf, -jnp.inf, jnp.nan])


@examples(10)
@given(
    st.sampled_from([smoothed, added, chosen, growing, divided]),
    st.lists(SPECIAL, min_size=6, max_size=6),
    st.booleans(),
)
def test_infinities_and_resets_as_in_the_loop(step, values, reverse):
    xs = jnp.array([1.0, 2.0, *values, 3.0, -1.0, 0.5, 2.0], jnp.float32)
    loop, args = loop_of(step, jnp.float32(1.0), xs, reverse=reverse)
    splits = splits_of(loop, partial(linear, chunks=3), simplify)
    ours, stock = run(splits, lambda *args: [], args), stock_run(loop, *args)
    for a, b in zip(ours, stock, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_only_long_loops_with_few_lanes_are_worth_it():
    def split(length, lanes):
        loop, _ = loop_of(smoothed, jnp.zeros(lanes), jnp.ones((length, lanes)))
        return linear(loop)

    assert split(8192, 8) is not None
    assert split(1024, 8) is None
    assert split(8192, 10_000) is None


def test_a_carry_that_stays_takes_its_steps_anyway():
    def step(carry, x):
        h, c = carry
        return (jnp.sin(h + x), 0.5 * c + x), c

    loop, _ = loop_of(step, (0.0, 0.0), jnp.ones(8192))
    assert linear(loop) is None


@pytest.fixture
def like_a_gpu(monkeypatch):
    """The CPU as a device that wants more lanes."""
    monkeypatch.setattr(Cpu, "passes", WIDE_PASSES)
    monkeypatch.setattr(Cpu, "parallel_passes", PARALLEL_PASSES)
    monkeypatch.setattr(worth, "LONG", 500)
    jax.clear_caches()
    yield
    jax.clear_caches()


def returns(scan, xs):
    return scan(smoothed, jnp.zeros(xs.shape[1:]), xs, reverse=True)


def test_the_report_says_so_and_options_refuse_it(like_a_gpu):
    xs = normal(0, 2048, 5)
    onescan.clear_report()
    ours = jax.jit(partial(returns, onescan.scan))(xs)
    (row,) = onescan.report().rows
    assert "linear" in row.passes
    assert row.notes[0].startswith("ran c' = a*c + b (test_linear.py:")
    assert row.notes[0].endswith("as a parallel scan of 64 chunks")
    with onescan.options(sequential=True):
        again = jax.jit(partial(returns, onescan.scan))(xs)
    assert "linear" not in onescan.report().rows[-1].passes
    stock = returns(lax.scan, xs)
    for a, b, c in zip(*map(jax.tree.leaves, (ours, again, stock)), strict=True):
        np.testing.assert_allclose(a, c, atol=1e-5)
        np.testing.assert_allclose(b, c, atol=1e-5)


def test_on_a_cpu_the_order_is_kept():
    onescan.clear_report()
    jax.jit(partial(returns, onescan.scan))(normal(0, 2048, 5))
    (row,) = onescan.report().rows
    assert "linear" not in row.passes
    assert Cpu.parallel_passes == ()


@pytest.mark.parametrize("transform", ["grad", "vmap", "strict", "check"])
def test_inside_transformations_and_modes(transform, like_a_gpu):
    def loss(scan, xs):
        return jnp.sum(returns(scan, xs)[1] ** 2)

    xs = normal(0, 600, 5)
    if transform == "grad":
        run = jax.grad
    elif transform == "vmap":
        run, xs = jax.vmap, normal(0, 3, 600, 5)
    else:
        run = jax.jit
        onescan.install(**{transform: True})
    try:
        ours = jax.jit(run(partial(loss, onescan.scan)))(xs)
    finally:
        onescan.uninstall()
    stock = run(partial(loss, lax.scan))(xs)
    np.testing.assert_allclose(ours, stock, rtol=1e-4, atol=1e-5)
