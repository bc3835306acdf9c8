"""Divisors of many numbers are turned over once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree
from jax import lax
from jax.extend.core import jaxpr_as_fun

from onescan.passes.inline import flatten

X = jnp.linspace(-3.0, 5.0, 24).reshape(4, 6)
Y = jnp.linspace(0.5, 2.0, 4)


def divisions(f: Any, *args: Any) -> list[int]:
    """The numbers of each division in a flat function, which gives what it gave."""
    flat = flatten(jax.make_jaxpr(f)(*args))
    expected = jax.tree.leaves(f(*args))
    for found, want in zip(jaxpr_as_fun(flat)(*args), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=4e-7)
    eqns = [eqn for eqn in flat.jaxpr.eqns if eqn.primitive.name == "div"]
    return [eqn.outvars[0].aval.size for eqn in eqns]


@pytest.mark.parametrize("number", [3.0, -7.0, 0.1, 1e30, 4.0])
def test_constants_are_turned_over(number):
    assert divisions(lambda x: x / number, X) == []
    assert divisions(lambda x: jnp.mean(x, 0) / number, X) == []


@pytest.mark.parametrize("number", [2e38, 1e-39, 0.0, jnp.inf, jnp.nan])
def test_constants_without_a_normal_inverse_stay(number):
    assert divisions(lambda x: lax.div(1e9 * x, jnp.full_like(x, number)), X) == [24]


def test_what_is_spread_is_turned_over_first():
    assert divisions(lambda x, y: x / y[:, None], X, Y) == [4]
    assert divisions(lambda x: x / x.sum(), X) == [1]
    assert divisions(lambda x: jax.nn.softmax(x), X) == [4]


def test_other_divisions_stay():
    assert divisions(lambda x, y: x / (x + 9), X, Y) == [24]
    assert divisions(lambda x: 1.0 / (x + 9), X) == [24]
    assert divisions(lambda y: y[:1] / y[0], Y) == [1]
    assert divisions(lambda x: (10 * x).astype(int) // 3, X) == [24]
    assert divisions(lambda x: x.astype(jnp.bfloat16) / jnp.bfloat16(3), X) == [24]


def test_nothing_is_divided():
    assert divisions(lambda x: x[:0] / x[:0].sum(1, keepdims=True), X) == [0]
    assert divisions(lambda x: x[:, :0] / x[:0, :0].sum(0), X) == [0]


def test_inside_inner_loops():
    f = lambda x: lax.fori_loop(0, 3, lambda _, c: c / c.sum(1, keepdims=True), x)
    flat = flatten(jax.make_jaxpr(f)(X))
    (loop,) = [eqn for eqn in flat.jaxpr.eqns if eqn.primitive.name == "scan"]
    inside = loop.params["jaxpr"].jaxpr.eqns
    sizes = [e.outvars[0].aval.size for e in inside if e.primitive.name == "div"]
    assert sizes == [4]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_engines_agree(dtype):
    with jax.enable_x64(dtype == jnp.float64):
        x = jnp.asarray(np.asarray(X), dtype) + 4

        def step(c, _):
            c = c / c.sum(1, keepdims=True) + c.mean(0) / 3
            return c, c.max() / 7

        assert_engines_agree(lambda c: lax.scan(step, c, None, length=5), x, ulps=8)
