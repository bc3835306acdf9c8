"""ahead: carries that run first, and what that frees."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from passing import assert_same, core_of, loop_of, notes_of, outside, shown, splits_of

import onescan
from onescan.api import reference
from onescan.passes import PASSES, WIDE_PASSES, XLA_WIDE_PASSES
from onescan.passes.ahead import ahead
from onescan.passes.hoist import hoist
from onescan.passes.overtime import ROWS
from onescan.passes.simplify import simplify
from onescan.passes.worth import FILLS_A_GPU

W = jnp.linspace(-0.1, 0.1, 64 * 256).reshape(64, 256)
X = jnp.linspace(-1.0, 1.0, 5 * 64).reshape(5, 64)
KEY = jax.random.key(7)


def two_layers(carry: Any, x: Any) -> Any:
    """The second layer's product reads only the first layer's state."""
    first, second = carry
    second = jnp.tanh(second + first @ W)
    first = jnp.tanh(first * 0.5 + x)
    return (first, second), second


def walk(carry: Any, _: Any) -> Any:
    key, x = carry
    key, use = jax.random.split(key)
    x = x + jax.random.normal(use)
    return (key, x), x


def many_draws(carry: Any, _: Any) -> Any:
    key, x = carry
    key, use = jax.random.split(key)
    x = 0.5 * x + jax.random.uniform(use, x.shape)
    return (key, x), None


STATE = jnp.linspace(0.0, 1.0, 64), jnp.zeros(256)


def test_the_first_of_two_layers_runs_ahead():
    loop, args = loop_of(two_layers, STATE, X)
    splits = splits_of(loop, ahead, hoist, simplify)
    assert shown(core_of(splits).body) == [
        "in  a:float32[256] b:float32[256]",
        "c:float32[256] = add a b",
        "d:float32[256] = tanh c",
        "out d d",
    ]
    around = [line.split(" = ")[-1].split()[0] for line in outside(splits, args)]
    assert around.count("scan") == 1
    assert around.index("scan") < around.index("dot_general")
    assert around.index("dot_general") < around.index("onescan_loop")
    assert_same(loop, splits, args)
    assert notes_of(splits[0]) == [
        "freed 1 matrix product (first @ W, test_ahead.py:0) "
        "by running the carries that it takes ahead of the loop"
    ]


def test_heavy_work_of_the_first_is_not_done_again_for_the_rest():
    """The second layer reads what the first has just computed, by a product."""

    def step(carry: Any, x: Any) -> Any:
        first, second = carry
        first = jnp.tanh(first @ W @ W.T + x)
        second = jnp.tanh(second + first @ W)
        return (first, second), second

    loop, args = loop_of(step, STATE, X)
    splits = splits_of(loop, ahead, hoist, simplify)
    assert "dot_general" not in str(core_of(splits).body)
    products = [line for line in outside(splits, args) if "dot_general" in line]
    assert len(products) == 1  # for all steps; those of the first are in its loop
    assert_same(loop, splits, args)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("passes", [PASSES, WIDE_PASSES], ids=["narrow", "wide"])
def test_draws_of_a_key_in_the_carry_leave_the_loop(passes, reverse):
    init = (jax.random.key_data(KEY), 0.25)

    def step(carry: Any, x: Any) -> Any:
        (key, x), y = walk((jax.random.wrap_key_data(carry[0]), carry[1] * x), None)
        return (jax.random.key_data(key), x), y

    loop, args = loop_of(step, init, jnp.linspace(0.5, 1.0, 65), reverse=reverse)
    splits = splits_of(loop, *passes)
    assert "threefry2x32" in str(loop.body)
    assert "threefry2x32" not in str(core_of(splits).body)
    assert "erf_inv" not in str(core_of(splits).body)
    assert_same(loop, splits, args)


def test_a_cpu_draws_in_the_loop_what_fills_its_vectors():
    for size, leaves in ((15, True), (16, False)):
        loop, args = loop_of(many_draws, (KEY, jnp.zeros(size)), None, length=64)
        splits = splits_of(loop, *PASSES)
        assert any(split.name == "ahead" for split in splits) == leaves
        wide = splits_of(loop, *WIDE_PASSES)
        assert any(split.name == "ahead" for split in wide)
        assert_same(loop, wide, args)


def test_loops_of_xla_on_a_gpu_keep_draws_that_fill_it():
    for size, leaves in ((FILLS_A_GPU - 1, True), (FILLS_A_GPU, False)):
        loop, _ = loop_of(many_draws, (KEY, jnp.zeros(size)), None, length=64)
        splits = splits_of(loop, *XLA_WIDE_PASSES)
        assert ("threefry2x32" not in str(core_of(splits).body)) == leaves


def test_loops_of_xla_on_a_gpu_stay_one():
    loop, _ = loop_of(two_layers, STATE, X)
    assert "ahead" in [split.name for split in splits_of(loop, *WIDE_PASSES)]
    assert "ahead" not in [split.name for split in splits_of(loop, *XLA_WIDE_PASSES)]


@pytest.mark.parametrize(
    ("passes", "staying"),
    [
        (WIDE_PASSES, {"cumsum"}),
        (XLA_WIDE_PASSES, {"cumsum", "reduce_max", "sort", "tanh"}),
    ],
    ids=["kernel", "XLA"],
)
def test_what_is_made_of_draws_stays(passes, staying):
    """Of sums along an axis, what follows from them too."""

    def step(carry: Any, _: None) -> Any:
        key, x = carry
        key, sub = jax.random.split(key)
        draws = jax.random.normal(sub, (40,))
        made = jnp.tanh(draws.max()) + jnp.sort(draws)
        return (key, x + made + jnp.exp(jnp.cumsum(draws))), x.sum()

    loop, args = loop_of(step, (KEY, jnp.zeros(40)), None, length=64)
    splits = splits_of(loop, *passes)
    left = {eqn.primitive.name for eqn in core_of(splits).body.jaxpr.eqns}
    assert staying | {"exp"} <= left
    assert not left & ({"threefry2x32", "erf_inv", "sort", "tanh"} - staying)
    assert_same(loop, splits, args)


def test_products_that_only_feed_ys_are_left_to_sink():
    def step(carry: Any, x: Any) -> Any:
        first, second = carry
        return (jnp.tanh(first + x), second * 0.5), first @ W

    loop, _ = loop_of(step, (STATE[0], 1.0), X)
    assert ahead(loop) is None


def test_carries_that_need_each_other_stay_together():
    def step(carry: Any, x: Any) -> Any:
        first, second = carry
        return (jnp.tanh(first + x + second[:64]), jnp.tanh(first @ W)), None

    loop, _ = loop_of(step, STATE, X)
    assert ahead(loop) is None


def test_light_work_frees_nothing():
    def step(carry: Any, x: Any) -> Any:
        i, total = carry
        return (i + 1, total + x * jnp.sin(i)), None

    loop, _ = loop_of(step, (0.0, jnp.zeros(64)), X)
    assert ahead(loop) is None


def test_three_layers_are_peeled_one_by_one():
    def step(carry: Any, x: Any) -> Any:
        a, b, c = carry
        return (
            jnp.tanh(a * 0.5 + x),
            jnp.tanh(b + a @ W),
            jnp.tanh(c + b @ W.T),
        ), c

    init = (STATE[0], STATE[1], jnp.zeros(64))
    loop, args = loop_of(step, init, X)
    splits = splits_of(loop, *PASSES)
    assert "dot_general" not in str(core_of(splits).body)
    assert len(core_of(splits).carry_avals) == 1
    assert_same(loop, splits, args)


@pytest.mark.parametrize("length", [1, 3, 63, 64, 65, 66])
def test_few_draws_are_folded_into_lanes(length):
    """Whatever the length leaves over of `ROWS` rows."""
    assert ROWS == 4
    keys = jax.random.split(KEY, length)
    step = lambda x, key: (0.5 * x + jax.random.normal(key), x)
    ours = jax.jit(lambda keys: onescan.scan(step, 0.0, keys))(keys)
    stock = jax.jit(lambda keys: lax.scan(step, 0.0, keys))(keys)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), ours, stock)


def walked(scan: Any, x: Any) -> Any:
    (_, last), path = scan(walk, (KEY, x), None, length=70)
    return last + jnp.sum(path**2)


TRANSFORMED = {
    "jit": (lambda f: f, 0.5),
    "grad": (jax.grad, 0.5),
    "vmap": (jax.vmap, np.linspace(-1.0, 1.0, 5, dtype=np.float32)),
}


@pytest.mark.parametrize("transform", TRANSFORMED)
def test_a_walk_is_what_the_oracles_say(transform):
    transformed, x = TRANSFORMED[transform]
    with onescan.engine("native"):
        ours = jax.jit(transformed(partial(walked, onescan.scan)))(x)
    stock = jax.jit(transformed(partial(walked, lax.scan)))(x)
    np.testing.assert_allclose(ours, stock, rtol=1e-4)
    if transform == "jit":  # as written, one step after the other
        plain = walked(reference.scan, x)
        np.testing.assert_allclose(ours, plain, rtol=1e-4)


def test_the_report_tells():
    onescan.clear_report()
    jax.jit(lambda x: onescan.scan(walk, (KEY, x), None, length=70))(0.5)
    (row,) = onescan.report().rows
    assert "ahead" in row.passes
    assert any("freed 1 draw of random bits" in note for note in row.notes)


def test_products_of_many_rows_stay_with_the_carries_that_they_take():
    def step(carry: Any, _: None) -> Any:
        first, second = carry
        return (jnp.tanh(first), second + first @ W[:32, :32]), None

    loop, _ = loop_of(step, (jnp.ones((200, 32)), jnp.zeros((200, 32))), None, length=9)
    assert ahead(loop) is None
    assert ahead(loop, draws="all") is not None  # a GPU, or XLA
