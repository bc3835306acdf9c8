"""The pass that computes before it spreads."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from passing import assert_same, loop_of, notes_of, splits_of

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
    "other",
    [
        lambda c, x: jnp.full(c.shape, x) + 1.0,  # as cheap as spreading
        lambda c, x: jnp.tanh(c * x),
        lambda c, x: jnp.broadcast_to(c[0], c.shape) / jnp.full(c.shape, x + 2.0),
        lambda c, x: jnp.tanh(jnp.reshape(c, (1, 6, 4)))[0],
    ],
)
def test_nothing_to_narrow(other):
    loop, _ = loop_of(lambda c, x: (c + other(c, x), None), C, C[:, 0])
    assert not splits_of(loop, narrow)
