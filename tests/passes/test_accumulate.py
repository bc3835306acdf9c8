"""The pass that takes accumulators out of a loop: which, and what it makes of them."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import pytest
from jax import lax
from passing import (
    W,
    X,
    assert_same,
    core_of,
    loop_of,
    notes_of,
    outside,
    shown,
    splits_of,
)

from onescan.passes.accumulate import accumulate
from onescan.passes.simplify import simplify
from onescan.passes.sink import sink

ROWS = (((0,), (0,)), ((), ()))  # contract the first dimension of both


def product(a, b):
    return lax.dot_general(a, b, ROWS)


def test_accumulate_contracts_time_too():
    def step(carry, x):
        h, total = carry
        h = jnp.tanh(h + x)
        return (h, total + product(h, x)), None

    init = jnp.zeros((2, 16)), jnp.ones((16, 16))
    loop, args = loop_of(step, init, X.repeat(2, axis=2)[:, :, :16])
    splits = splits_of(loop, simplify, accumulate)
    assert shown(core_of(splits).body) == [
        "in  a:float32[2,16] b:float32[2,16]",
        "c:float32[2,16] = add a b",
        "d:float32[2,16] = tanh c",
        "out d d",
    ]
    assert outside(splits, args)[-6:] == [
        "d:float32[2,16] e:float32[5,2,16] = onescan_loop a c",
        "f:float32[10,16] = reshape e",
        "g:float32[10,16] = reshape c",
        "h:float32[16,16] = dot_general f g",
        "i:float32[16,16] = add b h",
        "out d i",
    ]
    assert_same(loop, splits, args)
    assert notes_of(splits[-1]) == [
        "accumulated 1 matrix product (lax.dot_general(a, b, ROWS), "
        "test_accumulate.py:0) over 5 steps into one each",
    ]


def test_accumulate_multiplies_what_no_step_changes():
    shift = jnp.linspace(0.0, 1.0, 256).reshape(16, 16)

    def step(carry, x):
        h, total = carry
        h = jnp.tanh(h + x)
        return (h, total - (product(h, x) + shift)), None

    loop, args = loop_of(step, (jnp.zeros((2, 16)), jnp.ones((16, 16))), X)
    splits = splits_of(loop, accumulate)
    assert core_of(splits).num_carry == 1
    assert_same(loop, splits, args)


def test_views_into_a_large_carry_are_left_behind_alone():
    def step(carry, x):
        buffer, i, total = carry
        row = lax.dynamic_slice(buffer, (i, 0), (2, 16))
        buffer = lax.dynamic_update_slice(buffer, row + x, (i, 0))
        return (buffer, i + 1, total + product(row, x)), row @ W

    init = jnp.ones((100, 16)), 0, jnp.zeros((16, 16))
    loop, args = loop_of(step, init, X)
    splits = splits_of(loop, simplify, accumulate, sink, simplify)
    assert [a.shape for a in core_of(splits).y_avals] == [(2, 16)]
    assert_same(loop, splits, args)


def two_products(h, x):
    h = jnp.tanh(h + x)
    return h, [h.T @ x, (2 * x).T @ h - h.T @ h], [h.sum(0), jnp.sum(3 * h + x)]


@pytest.mark.parametrize("reverse", [False, True])
def test_accumulators_share_what_the_loop_leaves_behind(reverse):
    def step(carry, x):
        h, weights, biases = carry
        h, products, sums = two_products(h, x)
        weights = [w + p for w, p in zip(weights, products, strict=True)]
        biases = [b - s for b, s in zip(biases, sums, strict=True)]
        return (h, weights, biases), h[0, 0]

    xs = jnp.linspace(-1.0, 1.0, 7 * 32 * 32).reshape(7, 32, 32)
    weights = [jnp.ones((32, 32)), jnp.zeros((32, 32))]
    init = jnp.zeros((32, 32)), weights, [jnp.ones(32), jnp.float32(1.0)]
    loop, args = loop_of(step, init, xs, reverse=reverse)
    splits = splits_of(loop, simplify, accumulate)
    core = core_of(splits)
    assert core.num_carry == 1
    assert splits[-1].extra == 32 * 32 * 4  # h, once
    assert_same(loop, splits, args)


@pytest.mark.parametrize("reduce", [jnp.maximum, jnp.minimum])
def test_largest_and_smallest_of_what_needs_no_carry(reduce):
    def step(carry, x):
        h, most = carry
        return (jnp.tanh(h + x[0, 0]), reduce(most, x)), h

    xs = jnp.sin(jnp.arange(5.0 * 32 * 64)).reshape(5, 32, 64)
    loop, args = loop_of(step, (0.0, jnp.zeros((32, 64))), xs)
    splits = splits_of(loop, partial(accumulate, reductions=True))
    assert core_of(splits).num_carry == 1
    assert_same(loop, splits, args)


def read_in_ys(total, x):
    return total + x.T @ x, total[0, 0]


def old_value_as_y(total, x):
    return total + x.T @ x, total


def new_value_in_ys(total, x):
    total = total + x.T @ x
    return total, total[0]


def scaled(total, x):
    return 0.9 * total + x.T @ x, None


def multiplied(total, x):
    return total * (x.T @ x), None


def subtracted_from(total, x):
    return x.T @ x - total, None


def added_to_itself(total, x):
    return total + total, x


@pytest.mark.parametrize(
    "step",
    [
        read_in_ys,
        old_value_as_y,
        new_value_in_ys,
        scaled,
        multiplied,
        subtracted_from,
        added_to_itself,
    ],
)
def test_accumulate_leaves_carries_that_are_more_than_sums(step):
    loop, _ = loop_of(step, jnp.ones((16, 16)), X)
    assert accumulate(loop) is None


def test_accumulate_leaves_small_sums():
    def step(carry, x):
        h, total = carry
        h = jnp.sin(h + x)
        return (h, total + h), None

    loop, _ = loop_of(step, (jnp.zeros(64), jnp.zeros(64)), jnp.ones((5, 64)))
    assert accumulate(loop) is None


def test_accumulate_sets_lanes_free():
    def step(carry, x):
        h, loss = carry
        h = jnp.sin(h + x)
        return (h, loss + jnp.sum(h * h)), None

    loop, args = loop_of(step, (jnp.zeros(64), 0.0), jnp.ones((5, 64)))
    splits = splits_of(loop, simplify, accumulate)
    assert [v.shape for v in core_of(splits).y_avals] == [(64,)]
    assert_same(loop, splits, args)


def test_accumulate_is_right_for_integers_and_halves():
    def step(carry, x):
        h, count, half = carry
        h = h + x
        product = (h.T @ x).astype(jnp.bfloat16)
        return (h * 0.5, count + jnp.int8(100) * jnp.int8(1), half + product), None

    init = jnp.zeros((2, 16)), jnp.int8(3), jnp.zeros((16, 16), jnp.bfloat16)
    loop, args = loop_of(step, init, X[:, :, :16])
    splits = splits_of(loop, simplify, accumulate)
    assert core_of(splits).num_carry == 2
    assert_same(loop, splits, args, tolerance=0.02)
