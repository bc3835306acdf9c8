"""The loop passes: what each takes out, and that nothing but rounding changes."""

from __future__ import annotations

from functools import partial

import jax
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

import onescan
from onescan.passes.accumulate import accumulate
from onescan.passes.borders import borders
from onescan.passes.hoist import hoist
from onescan.passes.simplify import simplify
from onescan.passes.sink import sink
from onescan.passes.split import improved, variables

#: a product of enough multiply-adds for each number of its result, and its operand
DEEP, LONG = jnp.tile(W, (2, 1)), jnp.tile(X, (1, 1, 2))


def test_hoist_makes_one_product_of_all_steps():
    def step(h, x):
        h = jnp.tanh(x @ DEEP + h)
        return h, h

    loop, args = loop_of(step, jnp.zeros((2, 256)), LONG)
    splits = splits_of(loop, hoist, simplify)
    assert shown(core_of(splits).body) == [
        "in  a:float32[2,256] b:float32[2,256]",
        "c:float32[2,256] = add b a",
        "d:float32[2,256] = tanh c",
        "out d d",
    ]
    assert outside(splits, args) == [
        "in  a:float32[32,256] b:float32[2,256] c:float32[5,2,32]",
        "d:float32[10,32] = reshape c",
        "e:float32[10,256] = dot_general d a",
        "f:float32[5,2,256] = reshape e",
        "g:float32[2,256] h:float32[5,2,256] = onescan_loop b f",
        "out g h",
    ]
    assert_same(loop, splits, args)
    assert notes_of(splits[0]) == [
        "hoisted 1 matrix product (x @ DEEP, test_passes.py:0) over 5 steps",
    ]


def test_hoist_takes_along_what_feeds_the_product():
    def step(h, x):
        return h + jnp.sum(jnp.tanh(x) @ DEEP), None

    loop, args = loop_of(step, 0.0, LONG)
    splits = splits_of(loop, hoist, simplify)
    assert "tanh" not in str(core_of(splits).body)
    assert_same(loop, splits, args)


def test_hoist_computes_no_sum_twice():
    """A mean on the way to the product is read by the step that wants it too."""
    tall = jnp.tile(LONG, (1, 32, 1))

    def step(h, x):
        mean = jnp.mean(jnp.tanh(x), 0)
        h = jnp.tanh(mean[None] @ DEEP + h) * mean.sum()
        return h, None

    loop, args = loop_of(step, jnp.zeros((1, 256)), tall)
    splits = splits_of(loop, hoist, simplify)
    lines = shown(core_of(splits).body)
    assert not any("float32[64,32]" in line for line in lines)
    assert sum("tanh" in line for line in lines) == 1
    assert_same(loop, splits, args)


def test_hoist_leaves_a_product_that_is_less_than_its_result_costs_in_memory():
    def step(h, x):
        return jnp.tanh(x @ W + h), None

    loop, _ = loop_of(step, jnp.zeros((2, 256)), X)
    assert hoist(loop) is None
    assert hoist(loop, draws="all") is not None  # a GPU, or XLA


def test_hoist_takes_long_sums_out_on_a_gpu():
    """Or every thread would add up all numbers of a step for itself."""

    def step(h, x):
        return h * jnp.mean(jnp.exp(x)) + jnp.sum(x[:8]), None

    loop, args = loop_of(step, jnp.ones(2), jnp.linspace(0, 1, 5 * 99).reshape(5, 99))
    splits = splits_of(loop, partial(hoist, sums=True), simplify)
    lines = shown(core_of(splits).body)
    assert not any("exp" in line for line in lines)
    assert sum("reduce_sum" in line for line in lines) == 1  # of eight numbers
    assert_same(loop, splits, args)
    assert hoist(loop) is None


def test_hoist_computes_once_what_no_step_changes():
    def step(h, _):
        return h @ jnp.exp(W[:, :16]), None

    loop, args = loop_of(step, jnp.ones((2, 16)), None, length=4)
    splits = splits_of(loop, hoist, simplify)
    assert shown(core_of(splits).body) == [
        "in  a:float32[16,16] b:float32[2,16]",
        "c:float32[2,16] = dot_general b a",
        "out c",
    ]
    assert_same(loop, splits, args)
    assert notes_of(splits[0]) == [
        "computed 1 `exp` (jnp.exp(W[:, :16]), test_passes.py:0) "
        "once instead of 4 times"
    ]


def test_hoist_leaves_numbers_that_the_compiler_knows():
    """A remainder makes sure of its divisor, which is a number of the program."""
    loop, _ = loop_of(lambda i, _: ((i + 1) % 4096, None), 0, None, length=4)
    assert any(not variables(eqn.invars) for eqn in loop.body.jaxpr.eqns)
    assert hoist(loop) is None


@pytest.mark.parametrize(("draws", "steps"), [("few", 64), ("all", 6)])
def test_hoist_draws_the_random_bits_of_all_steps_at_once(draws, steps):
    def step(h, key):
        return h * 0.5 + jax.random.normal(key), None

    loop, args = loop_of(step, 0.0, jax.random.split(jax.random.key(0), steps))
    splits = splits_of(loop, partial(hoist, draws=draws))
    assert "threefry2x32" in str(loop.body)
    assert "threefry2x32" not in str(core_of(splits).body)
    assert_same(loop, splits, args)


def test_few_draws_leave_without_what_only_meets_them():
    """A number that scales a vector of each step, and its product with a matrix."""
    weights = jnp.eye(64)

    def step(h, both):
        key, x = both
        return h * 0.5 + (jax.random.normal(key) * x) @ weights, None

    keys = jax.random.split(jax.random.key(0), 64)
    loop, args = loop_of(step, jnp.zeros(64), (keys, jnp.ones((64, 64))))
    splits = splits_of(loop, hoist)
    left = str(core_of(splits).body)
    assert "threefry2x32" not in left
    assert "dot_general" in left
    assert_same(loop, splits, args)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_hoist_leaves_small_products(size):
    weights = jnp.eye(size)

    def step(h, x):
        return weights @ h + weights @ x, h

    loop, _ = loop_of(step, jnp.ones(size), jnp.ones((5, size)))
    assert hoist(loop) is None


def test_hoist_leaves_branches_of_a_step():
    def step(h, x):
        big = lax.cond(x[0, 0] > 0, lambda: x @ W, lambda: jnp.zeros((2, 256)))
        return h + big, None

    loop, _ = loop_of(step, jnp.zeros((2, 256)), X)
    assert hoist(loop) is None


def test_sink_computes_a_readout_after_the_loop():
    def step(h, x):
        h = jnp.tanh(h + x)
        return h, jax.nn.relu(h @ W)

    loop, args = loop_of(step, jnp.zeros((2, 16)), X)
    splits = splits_of(loop, sink, simplify)
    assert shown(core_of(splits).body) == [
        "in  a:float32[2,16] b:float32[2,16]",
        "c:float32[2,16] = add a b",
        "d:float32[2,16] = tanh c",
        "out d d",
    ]
    assert outside(splits, args) == [
        "in  a:float32[16,256] b:float32[2,16] c:float32[5,2,16]",
        "d:float32[2,16] e:float32[5,2,16] = onescan_loop b c",
        "f:float32[10,16] = reshape e",
        "g:float32[10,256] = dot_general f a",
        "h:float32[5,2,256] = reshape g",
        "i:float32[5,2,256] = max h 0.0",
        "out d i",
    ]
    assert_same(loop, splits, args)
    assert notes_of(splits[0]) == [
        "sank 1 matrix product (h @ W, test_passes.py:0) below 5 steps"
    ]


def test_sink_leaves_what_a_branch_follows():
    def step(h, x):
        h = jnp.tanh(h + x)
        wide = h @ W
        return h, lax.cond(h[0, 0] > 0, lambda: wide, lambda: -wide)

    loop, _ = loop_of(step, jnp.zeros((2, 16)), X)
    assert sink(loop) is None


def test_sink_leaves_what_the_next_step_needs():
    def step(h, x):
        wide = (h + x) @ W
        return jnp.tanh(wide[:, :16]), wide

    loop, _ = loop_of(step, jnp.zeros((2, 16)), X)
    assert sink(loop) is None


@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: a @ b.T,
        lambda a, b: a.T @ b,
        lambda a, b: a.T @ b.T,
        lambda a, b: (a.T @ b.T).T,
        lambda a, b: b.T @ a[0],
        lambda a, b: a[0] @ b.T,
    ],
)
def test_simplify_multiplies_matrices_as_they_are(product):
    """Transposes before a product become dimensions of it; others stay."""
    a, b = jnp.arange(36.0).reshape(6, 6) / 36, jnp.cos(jnp.arange(36.0).reshape(6, 6))

    def step(h, _):
        return jnp.tanh(h + product(h, b).sum() + product(a, h)), None

    loop, args = loop_of(step, a, None, length=3)
    splits = splits_of(loop, simplify)
    eqns = core_of(splits).body.jaxpr.eqns
    products = [eqn for eqn in eqns if eqn.primitive.name == "dot_general"]
    operands = {v for eqn in products for v in eqn.invars}
    transposes = [e for e in eqns if e.primitive.name == "transpose"]
    assert operands.isdisjoint(v for eqn in transposes for v in eqn.outvars)
    assert "transpose" in str(loop.body)
    assert_same(loop, splits, args)


def test_simplify_forwards_merges_and_drops():
    def step(carry, x):
        h, steady = carry
        y, unread = x
        a, b = jnp.sin(h + y), jnp.sin(h + y)
        return (a * b + steady, steady), (y, a, b, steady, 1.0, unread)

    init = jnp.ones(3), jnp.arange(3.0)
    loop, args = loop_of(step, init, (jnp.ones((4, 3)), jnp.ones((4, 2))), raw=True)
    splits = splits_of(loop, simplify)
    assert shown(core_of(splits).body) == [
        "in  a:float32[3] b:float32[3] c:float32[3]",
        "d:float32[3] = add b c",
        "e:float32[3] = sin d",
        "f:float32[3] = mul e e",
        "g:float32[3] = add f a",
        "out g e",
    ]
    assert_same(loop, splits, args)
    assert splits[0].notes == (
        "made 1 carry that no step changes constant",
        "did not stack 5 ys that are there already",
    )


def test_nothing_to_do():
    def step(h, x):
        return jnp.sin(h + x), h

    loop, _ = loop_of(step, jnp.ones(3), jnp.ones((4, 3)))
    assert splits_of(loop, simplify, accumulate, hoist, sink, simplify) == []


def test_hoist_leaves_a_product_of_what_both_change():
    def step(h, xy):
        return h + xy[0] @ xy[1], None

    xs = jnp.tile(LONG, (1, 16, 1)), jnp.tile(DEEP[None], (5, 1, 1))
    loop, _ = loop_of(step, jnp.zeros((32, 256)), xs)
    assert hoist(loop) is None
    assert hoist(loop, draws="all") is not None  # a GPU, or XLA


def test_a_loop_that_was_rewritten_knows_what_xla_would_run():
    def step(x, _):
        return x + jnp.zeros_like(x).at[1:-1].set(0.1 * (x[2:] - x[:-2])), None

    loop, _ = loop_of(step, jnp.ones(4000), None, length=3)
    core = core_of(improved(loop, (simplify, borders)))
    assert core.plain is loop
    assert "concatenate" in str(core.body)
    assert "concatenate" not in str(loop.body)


def test_work_that_left_a_loop_left_xla_s_too():
    loop, _ = loop_of(
        lambda h, x: (jnp.tanh(x @ DEEP + h), h), jnp.zeros((2, 256)), LONG
    )
    assert core_of(improved(loop, (hoist,))).plain is None


def test_an_empty_box_leaves_the_array_as_it_is():
    def step(x, _):
        return lax.dynamic_update_slice(x + 1, x[:0], (x.size,)), None

    loop, args = loop_of(step, jnp.zeros(4000), None, length=3)
    splits = improved(loop, (borders,))
    assert core_of(splits).body.out_avals[0].shape == (4000,)
    assert_same(loop, splits, args)
    with onescan.engine("native"):
        found = jax.jit(lambda x: onescan.scan(step, x, None, 3)[0])(jnp.zeros(4000))
    assert (found == 3).all()


def test_gradients_of_cumulative_minima_in_lanes():
    """JAX's are sums with arrays of no elements, among others."""

    def loss(x):
        last = lambda c: onescan.scan(lambda c, _: (lax.cummin(c), None), c, None, 2)[0]
        return jnp.sum(jnp.sin(jax.vmap(last)(x)))

    x = jnp.cos(jnp.arange(33 * 5 * 35.0)).reshape(33, 5, 5, 7)
    with onescan.engine("native"):
        ours = jax.jit(jax.grad(loss))(x)
    with onescan.engine("xla"):
        assert jnp.allclose(ours, jax.jit(jax.grad(lambda x: loss(x)))(x), atol=1e-6)


@pytest.mark.parametrize("reduced", [jnp.sum, jnp.max, jnp.min, jnp.prod])
def test_a_reduction_of_one_number_is_that_number(reduced):
    """Gradients have them where something was spread along a new axis; zeros keep
    their sign, as in XLA's reductions of one number.
    """
    xs = jnp.asarray([[-0.0, 0.0, 1.5, -2.0]] * 3)

    def body(c, x):
        return c, reduced(x[:, None], axis=1)

    loop, _ = loop_of(body, 0.0, xs)
    names = [eqn.primitive.name for eqn in loop.body.jaxpr.eqns]
    assert not any(name.startswith("reduce_") for name in names)
    with onescan.engine("native"):
        _, ours = onescan.scan(body, 0.0, xs)
    one = jax.jit(partial(reduced, axis=2))(xs[..., None])
    assert jnp.signbit(ours).tolist() == jnp.signbit(one).tolist()
    assert ours.tolist() == one.tolist()
