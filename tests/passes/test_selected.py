"""Branches that are computed all, and selected from, where threads share a step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

from onescan.passes.inline import flatten
from onescan.passes.selected import BRANCHES

X = jnp.linspace(-2.0, 2.0, 12).reshape(3, 4)
WAYS = [lambda x: x, lambda x: x * 2 + 1, lambda x: jnp.tanh(x), lambda x: -x]


def chosen(k: Any, x: Any) -> Any:
    return lax.switch(k, WAYS, x), lax.cond(x[0, 0] > k, jnp.abs, lambda x: x + 1.5, x)


def names(f: Any, *args: Any, platform: str = "cuda") -> list[str]:
    """The equations of a flat function; it has the results of the function."""
    flat = flatten(jax.make_jaxpr(f)(*args), platform)
    expected = jax.tree.leaves(f(*args))
    for found, want in zip(jaxpr_as_fun(flat)(*args), expected, strict=True):
        np.testing.assert_array_equal(found, want)
    return [eqn.primitive.name for eqn in flat.jaxpr.eqns]


@pytest.mark.parametrize("k", [-7, 0, 1, 2, 3, 99])
def test_results_are_selected(k):
    found = names(chosen, jnp.int32(k), X)
    assert found.count("select_n") == 2
    assert "cond" not in found


def test_a_cpu_branches():
    found = names(chosen, jnp.int32(1), X, platform="cpu")
    assert found.count("cond") == 2


def test_what_all_branches_give_is_not_selected():
    def f(p, x, y):
        return lax.cond(p, lambda x, y: (y, x, 1.0), lambda x, y: (y, y, 2.0), x, y)

    assert names(f, True, X, X + 1).count("select_n") == 2
    same = lambda p, x: lax.cond(p, lambda x: x, lambda x: x, x)
    assert names(same, True, X) in ([], ["convert_element_type"])


def test_keys_are_selected():
    def f(p, key):
        first, second = jax.random.wrap_key_data(key), jax.random.key(3)
        either = lax.cond(p, lambda a, b: a, lambda a, b: b, first, second)
        return jax.random.key_data(either)

    key = jnp.arange(2, dtype=jnp.uint32)
    assert "cond" not in names(f, False, key)
    assert "cond" not in names(f, True, key)


def test_branches_inside_inner_loops_are_selected():
    def f(x):
        step = lambda _, c: lax.cond(c[0, 0] > 0, lambda c: c - 1, lambda c: c + 3, c)
        return lax.fori_loop(0, 5, step, x)

    flat = flatten(jax.make_jaxpr(f)(X), "cuda")
    (loop,) = [eqn for eqn in flat.jaxpr.eqns if eqn.primitive.name == "scan"]
    inside = [eqn.primitive.name for eqn in loop.params["jaxpr"].jaxpr.eqns]
    assert "select_n" in inside
    assert "cond" not in inside


@pytest.mark.parametrize(
    "branch",
    [
        lambda x: x @ jnp.ones((4, 4)),
        lambda x: jnp.sort(x),
        lambda x: jnp.sin(jnp.tanh(jnp.exp(jnp.sin(x)))),
        lambda x: lax.fori_loop(0, 9, lambda _, c: c * 0.5, x),
        lambda x: x.at[0, 0].set(1.0),
    ],
)
def test_what_costs_more_is_branched_to(branch):
    f = lambda p, x: lax.cond(p, branch, lambda x: x, x)
    assert "cond" in names(f, True, X)


def test_many_branches_are_branched_to():
    ways = [lambda x, k=k: x + k for k in range(BRANCHES + 1)]
    assert "cond" in names(lambda k, x: lax.switch(k, ways, x), 2, X)
