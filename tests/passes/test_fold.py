"""Equations whose literals say what they give."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from onescan.passes.common import merged
from onescan.passes.inline import flatten
from onescan.passes.split import slice_of

X = np.array([[-3.5, 0.25, 7.0], [-0.0, np.inf, np.nan]], np.float32)
N = np.array([-7, 0, 5, 2**31 - 1], np.int32)


def left(f: Any, *args: Any) -> list[str]:
    """The names of the equations that are left of a function, which gives the same."""
    flat = flatten(jax.make_jaxpr(f)(*args))
    eqns, results = merged(flat.jaxpr.eqns, flat.jaxpr.outvars)
    eqns = slice_of(eqns, results, set(flat.jaxpr.invars))
    jaxpr = Jaxpr(
        (), flat.jaxpr.invars, results, eqns, debug_info=flat.jaxpr.debug_info
    )
    found = jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))(*args)
    expected = jax.tree.leaves(f(*map(jnp.asarray, args)))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other))
    return [eqn.primitive.name for eqn in eqns]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * 1.0,
        lambda x: 1.0 * x,
        lambda x: lax.div(x, np.float32(1)),
        lambda x: x - 0.0,
    ],
)
def test_floats_that_stay_as_they_are(f: Any) -> None:
    assert left(f, X) == []


@pytest.mark.parametrize(
    "f", [lambda n: n + 0, lambda n: 0 + n, lambda n: n * 1, lambda n: n | 0]
)
def test_integers_that_stay_as_they_are(f: Any) -> None:
    assert left(f, N) == []
    assert left(lambda n: f(n) - 3, N) == ["sub"]


def test_what_is_not_the_same() -> None:
    assert left(lambda x: x + 0.0, X) == ["add"]
    assert left(lambda x: 0.0 - x, X) == ["sub"]
    assert left(lambda n: 1 - n, N) == ["sub"]
    assert left(lambda x: x * 0.0, X) == ["mul"]
    assert left(lambda x: 1.0 / x, X) == ["div"]
    assert left(lambda n: lax.add(np.int32(0), n), np.int32(3)) == []
    assert left(lambda n: n & 0, N) == ["and"]


def test_a_product_with_nothing() -> None:
    assert left(lambda n: jnp.argsort(n) * 0 + 2, N) == ["broadcast_in_dim", "add"]


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.int8])
def test_the_same_with_64_bits(dtype: Any) -> None:
    """A number is converted there, and a remainder asks whether it is zero."""
    with jax.enable_x64(True):
        names = left(lambda n: n % 100, N.astype(dtype))
    assert "rem" in names
    assert not {"eq", "convert_element_type"} & set(names)


@pytest.mark.parametrize("number", [0.1, 3e38, -1e-50, np.nan])
def test_converted_floats(number: float) -> None:
    with jax.enable_x64(True):
        convert = lambda x: x * jnp.float64(number).astype(jnp.float32)
        assert left(convert, X) == ["mul"]


def test_equations_without_results_stay() -> None:
    def f(x: Any) -> Any:
        jax.debug.print("a number")
        return x * 1.0

    flat = flatten(jax.make_jaxpr(f)(X))
    eqns, _ = merged(flat.jaxpr.eqns, flat.jaxpr.outvars)
    assert [len(eqn.outvars) for eqn in eqns] == [0]
