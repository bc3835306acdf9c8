"""The pass that turns sums with nearly empty arrays into updates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import run
from jax import lax
from passing import assert_same, core_of, loop_of, notes_of, splits_of

import onescan
from onescan.passes.in_place import in_place
from onescan.passes.simplify import simplify

TABLE = jnp.linspace(-1.0, 1.0, 35).reshape(7, 5)
PLACES = jnp.array([0, 3, 6, 3, 9, -2])


def reads(table, how):
    """A loop that reads a row of a table in each step."""

    def step(c, i):
        return jnp.tanh(c + how(table, i)), None

    return onescan.scan(step, jnp.zeros(5), PLACES)[0].sum()


HOWS = {
    "index": lambda t, i: t[i],
    "take": lambda t, i: jnp.take(t, i, axis=0),
    "clip": lambda t, i: jnp.take(t, i, axis=0, mode="clip"),
    "dynamic_slice": lambda t, i: lax.dynamic_slice(t, (i, 0), (1, 5))[0],
    "column": lambda t, i: jnp.resize(t[:, i], 5),
    "slice": lambda t, i: t[2] * i,
    "several": lambda t, i: t[i] + t[(i + 1) % 7] + t[jnp.array([1, i])].sum(0),
}


@pytest.mark.parametrize("how", HOWS)
def test_gradients_of_rows(how):
    grad = jax.grad(lambda t: reads(t, HOWS[how]))
    ours, xla = (run(engine, grad, TABLE) for engine in ("native", "xla"))
    np.testing.assert_allclose(ours, xla, rtol=1e-5, atol=1e-6)


def names(loop):
    return [eqn.primitive.name for eqn in loop.body.jaxpr.eqns]


XS = jnp.array([1, 6, 3]), jnp.ones((3, 5))


def test_a_sum_becomes_an_update():
    loop, args = loop_of(
        lambda c, x: (
            c + lax.dynamic_update_slice(jnp.zeros((7, 5)), x[1][None], (x[0], 0)),
            None,
        ),
        TABLE,
        XS,
    )
    splits = splits_of(loop, simplify, in_place)
    assert_same(loop, splits, args)
    assert names(core_of(splits)).count("dynamic_slice") == 1
    shapes = [
        e.outvars[0].aval.shape
        for e in core_of(splits).body.jaxpr.eqns
        if e.primitive.name == "add"
    ]
    assert (7, 5) not in shapes
    assert notes_of(splits[-1]) == [
        "made 1 sum with a few elements of an array an update of these"
    ]


def test_what_is_read_elsewhere_stays():
    def step(c, x):
        sparse = lax.dynamic_update_slice(jnp.zeros((7, 5)), x[1][None], (x[0], 0))
        return c + sparse, sparse.sum()

    loop, _ = loop_of(step, TABLE, XS)
    assert in_place(loop) is None


def test_sums_with_what_is_not_zero_stay():
    def step(c, x):
        full = lax.dynamic_update_slice(jnp.ones((7, 5)), x[1][None], (x[0], 0))
        return c + full, None

    loop, _ = loop_of(step, TABLE, XS)
    assert in_place(loop) is None


@pytest.mark.parametrize(("rows", "changed"), [(2, True), (6, False)])
def test_most_of_an_array_is_not_a_few_elements(rows, changed):
    """A sum with a margin of zeros is one walk over both; an update would be three."""
    pad = lambda x: lax.pad(x, 0.0, [(1, 6 - rows, 0), (0, 0, 0)])
    loop, _ = loop_of(
        lambda c, x: (c + pad(x), None), jnp.zeros((7, 5)), jnp.ones((3, rows, 5))
    )
    assert (in_place(loop) is not None) == changed
