"""The pass that turns transposed products around."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from engines import run
from jax import lax
from passing import assert_same, loop_of, notes_of, splits_of

import onescan
from onescan.passes.orient import orient

X = jnp.linspace(-1.0, 1.0, 18 * 16).reshape(18, 16) / 10
W = jnp.linspace(0.5, -0.5, 16 * 20).reshape(16, 20) / 10


def names(loop):
    return [eqn.primitive.name for eqn in loop.body.jaxpr.eqns]


STEPS = {
    "first with first": lambda w, x: ((x @ w).T @ x).T,
    "last with first": lambda w, x: (w.T @ jnp.tanh(x).T).T,
    "of two precisions": lambda w, x: (
        lax.dot_general(
            w,
            x,
            (((0,), (1,)), ((), ())),
            precision=(lax.Precision.HIGHEST, lax.Precision.DEFAULT),
        ).T
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_transposed_product_is_turned_around(name):
    step = STEPS[name]

    def f(w, x):
        return w + 0.1 * step(w, x).sum(), step(w, x * w.sum())

    loop, args = loop_of(f, W, jnp.stack([X, -X]))
    splits = splits_of(loop, orient)
    assert_same(loop, splits, args)
    (split,) = splits
    assert "read transposed in that order" in " ".join(notes_of(split))
    found = names(split.loop)
    assert found.count("transpose") < names(loop).count("transpose")
    assert found.count("dot_general") == names(loop).count("dot_general")


@pytest.mark.parametrize(
    "step",
    [
        lambda w, x: (w, (lambda y: (y.T, y))(x @ w)),  # also read as it is
        lambda w, x: (w, (x + 1).T),  # no product
        lambda w, x: (w, jnp.einsum("bij,bjk->bki", x[None], w[None])),  # batched
        lambda w, x: (w, x @ w),
        lambda w, x: (w, (x[:4] @ w).T),  # small
    ],
)
def test_others_stay(step):
    loop, _ = loop_of(step, W, jnp.stack([X, -X]), raw=True)
    assert orient(loop) is None


@pytest.mark.parametrize("rows", [1, 3, 32])
@pytest.mark.parametrize("depth", [16, 24, 64])
def test_carried_weights_along_their_rows(rows, depth):
    """What every gradient of a dense layer has: x @ w.T, and its update of w."""
    g = jnp.asarray(np.random.default_rng(0).normal(size=(rows, depth)), jnp.float32)
    w = jnp.asarray(np.random.default_rng(1).normal(size=(32, depth)), jnp.float32)

    def step(w, i):
        h = jnp.tanh(g @ w.T)  # (rows, 32)
        column = h.T @ g[:, :1]  # (32, 1)
        return w - 0.01 * (g.T @ h).T + 0.001 * column, h.sum() + i

    def loop(w):
        return onescan.scan(step, w, jnp.arange(5.0))

    ours, xla = (run(engine, loop, w) for engine in ("native", "xla"))
    for found, expected in zip(ours, xla, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
