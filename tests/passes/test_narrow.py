"""The pass that computes before it spreads."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from passing import assert_same, loop_of, notes_of, splits_of

import onescan
from onescan import compat
from onescan.passes.inline import inline
from onescan.passes.narrow import narrow

C = jnp.linspace(-1.0, 1.0, 6 * 4).reshape(6, 4)


def sizes(loop, name):
    eqns = [eqn for eqn in loop.body.jaxpr.eqns if eqn.primitive.name == name]
    return [eqn.outvars[0].aval.shape for eqn in eqns]


@pytest.mark.parametrize(
    ("spread", "shape"),
    [
        (lambda c, x: jnp.tanh(jnp.full(c.shape, x)), ()),
        (lambda c, x: jnp.tanh(jnp.tanh(jnp.full(c.shape, x))), ()),
        (lambda c, x: jnp.tanh(jnp.broadcast_to(c[0] * x, c.shape)), (4,)),
        (
            lambda c, x: jnp.tanh(
                jnp.full(c.shape, x) / jnp.full(c.shape, 2.0 + c.sum())
            ),
            (),
        ),
    ],
)
def test_computed_before_it_is_spread(spread, shape):
    loop, args = loop_of(lambda c, x: (c + spread(c, x), None), C, C[:, 0])
    splits = splits_of(loop, narrow)
    assert_same(loop, splits, args)
    assert set(sizes(splits[0].loop, "tanh")) == {shape}
    assert "equal operands at many places" in " ".join(notes_of(splits[0]))


@pytest.mark.parametrize(
    "reduced", [jnp.sum, jnp.max, jnp.min], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("axis", [0, 1, (0, 1)], ids=str)
@pytest.mark.parametrize(
    "spread",
    [
        lambda c, x: jnp.full(c.shape, x),
        lambda c, x: jnp.broadcast_to(c[0] * x, c.shape),
        lambda c, x: jnp.broadcast_to(c[:, :1] * x, c.shape) + jnp.full(c.shape, x),
        lambda c, x: -jnp.broadcast_to(c[:, 1:2], c.shape) * jnp.full(c.shape, x),
    ],
    ids=["number", "row", "column", "chain"],
)
def test_of_equal_numbers_one_is_reduced(reduced, axis, spread):
    def body(c, x):
        return 0.5 * c + reduced(spread(c, x), axis=axis, keepdims=True), None

    loop, args = loop_of(body, C, C[:, 0])
    splits = splits_of(loop, narrow)
    assert_same(loop, splits, args)
    eqns = splits[0].loop.body.jaxpr.eqns
    left = [eqn for eqn in eqns if eqn.primitive.name.startswith("reduce_")]
    assert all(eqn.invars[0].aval.size <= C.size // 4 for eqn in left)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "int32"])
def test_counts_that_a_type_has_not(dtype):
    """8 bits have no 1,000, and their sums wrap around; float16 has no 4,099."""

    def body(c, x):
        return c + jnp.sum(jnp.full((1000, 1), x), axis=0, dtype=dtype), None

    def longer(c, x):
        return 0 * c + jnp.sum(jnp.full((4099, 1), x), axis=0, dtype=dtype), None

    c, xs = jnp.ones(1, dtype), jnp.arange(-3, 3).astype(dtype)
    loop, args = loop_of(body, c, xs)
    splits = splits_of(loop, narrow)
    assert splits
    assert_same(loop, splits, args)
    loop, args = loop_of(longer, c, xs)
    splits = splits_of(loop, narrow)
    assert bool(splits) == (dtype != "float16")
    if splits:
        assert_same(loop, splits, args)


def test_gradient_of_a_sum():
    """Its cotangent is one number, spread over what was summed."""

    def total(c):
        def body(c, x):
            outer = c[:, None] * c[None]
            return 0.9 * c + 0.1 * jnp.tanh(outer.mean() + x), outer.sum()

        c, y = lax.scan(body, c, jnp.arange(5.0))
        return c.sum() + y.sum()

    jaxpr = jax.make_jaxpr(jax.grad(total))(jnp.linspace(-1, 1, 16))
    eqn = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"][-1]
    loop = inline(compat.loop_of(eqn.params), "cpu")
    (split,) = splits_of(loop, narrow)
    shapes = [v.aval.shape for e in split.loop.body.jaxpr.eqns for v in e.invars]
    assert (16, 16) not in shapes


@pytest.mark.parametrize(
    "other",
    [
        lambda c, x: jnp.full(c.shape, x) + 1.0,  # as cheap as spreading
        lambda c, x: jnp.tanh(c * x),
        lambda c, x: c.sum() * x,  # of numbers that differ
        lambda c, x: jnp.broadcast_to(c[0] * x, c.shape).argmax(),
        lambda c, x: jnp.tanh(jnp.reshape(c, (1, 6, 4)))[0],
    ],
)
def test_nothing_to_narrow(other):
    loop, _ = loop_of(lambda c, x: (c + other(c, x), None), C, C[:, 0])
    assert not splits_of(loop, narrow)


def test_an_array_that_the_body_knows():
    """Constants of a jitted function inside are literals that are arrays."""
    known = np.arange(4, dtype="float32")

    @jax.jit
    def inner(c, x):
        return jnp.exp(jnp.broadcast_to(known, (6, 4)) * x) + jnp.tanh(c)

    with onescan.engine("native"):
        ours = onescan.scan(lambda c, x: (inner(c, x), None), C, C[:, 0])
    with onescan.engine("xla"):
        theirs = onescan.scan(lambda c, x: (inner(c, x), None), C, C[:, 0])
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
