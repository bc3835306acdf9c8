"""The text of every error about an argument of `scan`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from raising import error_of_both, error_only_ours, same, where

import onescan
from onescan import ScanTypeError, ScanValueError


class Point(NamedTuple):
    x: Any
    y: Any


@pytest.mark.parametrize("f", [3, None, "step", jnp.ones(2)])
def test_f_is_not_callable(f):
    error = error_of_both(f, 0, jnp.arange(3))
    assert isinstance(error, ScanTypeError)
    assert str(error) == (
        "onescan.scan: f must be a function (carry, x) -> (carry, y), but it is "
        f"{f!r}, of type {type(f).__name__}. The order is scan(f, init, xs)."
    )


@pytest.mark.parametrize("argument", ["init", "xs"])
@pytest.mark.parametrize(
    ("tree", "path", "leaf"),
    [
        ("abc", "", "'abc'"),
        ({"a": jnp.ones(3), "name": "abc"}, "['name']", "'abc'"),
        ((jnp.ones(3), [{1}]), "[1][0]", "{1}"),
        (Point(jnp.ones(3), int), ".y", "<class 'int'>"),
        (np.array(["a", "b", "c"]), "", "array(['a', 'b', 'c'], dtype='<U1')"),
    ],
)
def test_not_arrays(argument, tree, path, leaf):
    arguments = {"init": 0, "xs": jnp.ones(3), argument: tree}
    error = error_of_both(same, **arguments)
    assert isinstance(error, ScanTypeError)
    assert str(error).startswith(
        f"onescan.scan: {argument}{path} = {leaf}, given to {where(same)}, is of type "
    )
    assert str(error).endswith(
        f", not an array. Keep only arrays and numbers in {argument}; let the function "
        "close over everything else."
    )


def test_leaves_disagree_in_length():
    xs = {"a": jnp.ones(3), "b": (jnp.ones((4, 2)), jnp.ones(3))}
    error = error_of_both(same, 0, xs)
    assert isinstance(error, ScanValueError)
    assert str(error) == (
        f"onescan.scan: the leaves of xs for {where(same)} disagree in length: "
        "xs['a'] has 3, xs['b'][0] has 4, xs['b'][1] has 3. All leading axes must be "
        "the same, one entry per step."
    )


def test_length_disagrees_with_xs():
    error = error_of_both(same, 0, [jnp.ones(3)], length=4)
    assert str(error) == (
        f"onescan.scan: length=4 for {where(same)} disagrees with xs, whose leading "
        "axes are: xs[0] has 3. Leave length out, or cut xs to 4 steps."
    )


@pytest.mark.parametrize("xs", [None, (), {"a": None}, []])
def test_neither_xs_nor_length(xs):
    error = error_of_both(same, 0, xs)
    assert str(error) == (
        f"onescan.scan: {where(same)} has neither xs nor length, so the number of "
        "steps is unknown. Give length=..., or arrays with a leading axis as xs."
    )


ONE_ENTRY = (
    "Every leaf of xs has one entry per step; a value that is the same in every step "
    "does not belong in xs: let the function close over it."
)
STACK = (
    "xs is a container of arrays, each with one entry per step; if its elements are "
    "the steps, stack them first: jnp.stack(xs)."
)


@pytest.mark.parametrize(
    ("xs", "found", "fix"),
    [
        (5, "xs", "To run 5 steps, write length=5."),
        (2.5, "xs", ONE_ENTRY),
        (jnp.float32(2), "xs", ONE_ENTRY),
        ({"a": jnp.ones(3), "scale": np.float32(2)}, "xs['scale']", ONE_ENTRY),
        (Point(jnp.ones(3), 2), "xs.y", STACK),
        ([jnp.float32(1), jnp.float32(2)], "xs[0]", STACK),
        ([[1, 2], [3, 4]], "xs[0][0]", STACK),
    ],
)
def test_no_leading_axis(xs, found, fix):
    error = error_of_both(same, 0, xs)
    assert isinstance(error, ScanValueError)
    assert str(error).startswith(f"onescan.scan: {found} for {where(same)} is ")
    assert str(error).endswith(f"[], with no leading axis to scan over. {fix}")


@pytest.mark.parametrize("length", [-1, 3.7, "3"])
def test_length_out_of_range(length):
    """JAX takes these as 0 or 3 steps."""
    error = error_only_ours(same, 0, length=length)
    assert isinstance(error, ScanValueError)
    assert str(error) == (
        f"onescan.scan: length for {where(same)} must be an integer >= 0, but it is "
        f"{length!r}. It is the number of steps."
    )


@pytest.mark.parametrize("length", ["x", float("nan")])
def test_length_that_is_no_number(length):
    error = error_of_both(same, 0, length=length)
    assert isinstance(error, ScanValueError)
    assert f"must be an integer >= 0, but it is {length!r}." in str(error)


@pytest.mark.parametrize("length", [{}, [3], (), np.arange(2), jnp.arange(2)])
def test_length_of_a_wrong_type(length):
    error = error_of_both(same, 0, length=length)
    assert isinstance(error, ScanTypeError)
    assert f"must be an integer >= 0, but it is {length!r}." in str(error)


def test_negative_unroll():
    error = error_of_both(same, 0, jnp.arange(3), unroll=-2)
    assert isinstance(error, ScanValueError)
    assert str(error) == (
        f"onescan.scan: unroll for {where(same)} must be a bool or an integer >= 0, "
        "but it is -2. unroll=1 is an ordinary loop."
    )


@pytest.mark.parametrize("unroll", [1.5, 2.0, "2", None, [1]])
def test_unroll_of_a_wrong_type(unroll):
    def f(c, x):
        return c + x, c

    error = error_of_both(f, 0, jnp.arange(3), unroll=unroll)
    assert isinstance(error, ScanTypeError)
    assert f"a bool or an integer >= 0, but it is {unroll!r}." in str(error)


@pytest.mark.parametrize("argument", ["length", "unroll"])
def test_traced_numbers(argument):
    def run(n):
        return onescan.scan(same, 0, **{"length": 3, argument: n})

    with pytest.raises(ScanTypeError, match=f"^onescan.scan: {argument} for") as error:
        jax.jit(run)(3)
    text = str(error.value)
    assert "known when the loop is compiled, but it is a traced int32[]" in text
    assert "Mark it static (static_argnums of jax.jit)" in text
    with pytest.raises(jax.errors.ConcretizationTypeError, match=argument):
        jax.jit(run)(3)
    assert jax.jit(run, static_argnums=0)(3)[0] == 0
