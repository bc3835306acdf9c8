"""`derive`: a loop for a gradient does not stack what follows from what it stacks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from passing import assert_same, core_of, loop_of, notes_of, outside, shown, splits_of
from sampling import examples

import onescan
from onescan.passes import PASSES
from onescan.passes.derive import derive
from onescan.passes.simplify import simplify
from onescan.targets.cpu.target import Cpu

X = jnp.linspace(-1.0, 1.0, 5 * 16).reshape(5, 16)


def gradient_loop(step, *args):
    loop, args = loop_of(step, *args)
    return loop.replace(differentiated=True), args


def gate(h, x):
    p = jax.nn.sigmoid(h + x)
    return p * h, (p, p * (1 - p), 1 - p)


def test_a_sigmoid_is_stacked_once():
    loop, args = gradient_loop(gate, jnp.ones(16), X)
    splits = splits_of(loop, simplify, derive)
    assert shown(core_of(splits).body) == [
        "in  a:float32[16] b:float32[16]",
        "c:float32[16] = add a b",
        "d:float32[16] = logistic c",
        "e:float32[16] = mul d a",
        "out e d",
    ]
    assert outside(splits, args) == [
        "in  a:float32[16] b:float32[5,16]",
        "c:float32[16] d:float32[5,16] = onescan_loop a b",
        "e:float32[5,16] = sub 1.0 d",
        "f:float32[5,16] = mul d e",
        "out c d f e",
    ]
    assert_same(loop, splits, args)
    assert notes_of(splits[-1]) == [
        "did not stack 2 ys that follow from others by a few operations"
    ]


def test_loops_that_users_wrote_keep_their_ys():
    loop, _ = loop_of(gate, jnp.ones(16), X)
    assert not loop.differentiated
    assert derive(loop) is None


def test_what_needs_two_ys_or_dear_work_is_stacked():
    def step(h, x):
        a, b = jnp.sin(h), jnp.cos(x * h)
        return h + x, (a, b, a * b, jnp.exp(a))

    loop, _ = gradient_loop(step, jnp.ones(16), X)
    assert derive(loop) is None


def test_few_numbers_are_stacked():
    loop, _ = gradient_loop(gate, 1.0, X[:, 0])
    assert derive(loop) is None


def test_what_follows_from_an_x_is_computed_from_it():
    def step(h, x):
        return jnp.sin(h) + x, (jnp.sin(h), 2 * x + 1)

    loop, args = gradient_loop(step, jnp.ones(16), X)
    splits = splits_of(loop, derive)
    assert len(core_of(splits).y_avals) == 1
    assert_same(loop, splits, args)


LIGHT = [
    lambda a: 1 - a,
    lambda a: a * a,
    lambda a: -a,
    lambda a: a * (1 - a),
    lambda a: jnp.maximum(a, 0.5),
    lambda a: 3 * a + 2,
    jnp.tanh,
]


@examples(6)
@given(st.lists(st.tuples(st.sampled_from(range(len(LIGHT))), st.integers(0, 5))))
def test_random_ys_are_the_same(makers):
    def step(h, x):
        values = [jnp.sin(h + x)]
        for which, source in makers:
            values.append(LIGHT[which](values[source % len(values)]))
        return h + values[-1], values

    loop, args = gradient_loop(step, jnp.ones(16), X)
    if splits := splits_of(loop, simplify, derive, simplify):
        assert_same(loop, splits, args)


def test_a_gradient_needs_less_memory(monkeypatch):
    """And is the same to the last bits: the same operations on the same numbers."""
    weights = jax.random.normal(jax.random.key(0), (32, 32)) * 0.2

    def loss(weights, xs):
        def step(h, x):
            z, n = jax.nn.sigmoid(h @ weights), jnp.tanh(x + h)
            h = z * h + (1 - z) * n
            return h, h

        return jnp.sum(onescan.scan(step, jnp.ones((16, 32)), xs)[1] ** 2)

    xs = jax.random.normal(jax.random.key(1), (200, 16, 32))

    def compiled():
        jax.clear_caches()
        return jax.jit(jax.grad(loss)).lower(weights, xs).compile()

    onescan.clear_report()
    with_it = compiled()
    assert {row.engine for row in onescan.report().rows} == {"native"}
    others = tuple(apply for apply in PASSES if apply is not derive)
    monkeypatch.setattr(Cpu, "passes", others)
    without = compiled()
    residual = xs.size * 4
    saved = (
        without.memory_analysis().temp_size_in_bytes
        - with_it.memory_analysis().temp_size_in_bytes
    )
    assert saved >= 2 * residual
    np.testing.assert_allclose(
        with_it(weights, xs), without(weights, xs), rtol=1e-6, atol=1e-6
    )
