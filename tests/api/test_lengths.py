"""Lengths, directions, unrolling; and flat sequences of numbers as xs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same, type_of

import onescan
from onescan.api import reference

SCANS = pytest.mark.parametrize("scan", [onescan.scan, reference.scan])


def filtered(c, x):
    c = 0.5 * c + x
    return c, c


@pytest.mark.parametrize("unroll", [0, 1, 2, 3, 5, 100, True, False])
@pytest.mark.parametrize("reverse", [False, True])
def test_unroll(unroll, reverse):
    xs = jnp.arange(5.0)
    result = onescan.scan(filtered, 0.0, xs, None, reverse, unroll)
    assert_same(result, jax.lax.scan(filtered, 0.0, xs, None, reverse, unroll))
    assert_same(result, reference.scan(filtered, 0.0, xs, None, reverse, unroll))


@pytest.mark.parametrize("unroll", [np.int64(2), np.True_, jnp.int32(2)])
def test_unroll_may_be_any_integer(unroll):
    xs = jnp.arange(5.0)
    expected = jax.lax.scan(filtered, 0.0, xs)
    assert_same(onescan.scan(filtered, 0.0, xs, unroll=unroll), expected)


@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize("given", [int, float, np.int32, np.float32, jnp.int32])
def test_length_without_xs(length, given):
    def f(c, _):
        return c + 1, c

    expected = jax.lax.scan(f, 0, None, length)
    assert_same(onescan.scan(f, 0, length=given(length)), expected)
    assert_same(reference.scan(f, 0, length=given(length)), expected)


def test_length_with_empty_containers():
    def f(c, x):
        assert x == ({}, [])
        return c + 1, None

    assert_same(onescan.scan(f, 0, ({}, []), 3), jax.lax.scan(f, 0, ({}, []), 3))


@SCANS
def test_reverse_keeps_the_order_of_ys(scan):
    carry, ys = scan(lambda c, x: (c * 10 + x, x), 0, jnp.arange(1, 4), reverse=True)
    assert int(carry) == 321
    assert ys.tolist() == [1, 2, 3]


@SCANS
def test_the_example_of_the_document(scan):
    carry, ys = scan(lambda x, y: (x + y, y + 2), 0, [1, 2, 3])
    assert carry == 6
    assert ys.tolist() == [3, 4, 5]


SEQUENCES = [
    ([1, 2, 3], "int32", True),
    ((1, 2, 3), "int32", True),
    (range(1, 4), "int32", True),
    (range(0), "int32", True),
    (range(7, 1, -2), "int32", True),
    ([0.5, 1.5], "float32", True),
    ([1, 2.5], "float32", True),
    ([True, False], "bool", False),
    ([True, 2], "int32", True),
    ([1j, 2], "complex64", True),
    ([np.float32(1), np.float32(2)], "float32", False),
    ([np.int8(1), np.int8(2)], "int8", False),
    ([np.int8(1), 2], "int8", False),
    ([np.int8(1), np.int16(2)], "int16", False),
    ([jnp.bfloat16.dtype.type(1)], "bfloat16", False),
    ([np.bool_(True), np.bool_(False)], "bool", False),
    ((np.float16(1), 2.5, 3), "float16", False),
]


@pytest.mark.parametrize(("xs", "dtype", "weak"), SEQUENCES)
@SCANS
def test_flat_sequences_of_numbers(scan, xs, dtype, weak):
    _, ys = scan(lambda c, x: (c, x), 0, xs)
    assert type_of(ys) == ((len(xs),), jnp.dtype(dtype), weak)
    assert ys.tolist() == [complex(x) if dtype == "complex64" else x for x in xs]


def test_a_long_range_is_one_array():
    total, _ = onescan.scan(lambda c, x: (c + x % 7, None), 0, range(50_000))
    assert int(total) == sum(i % 7 for i in range(50_000))


def test_sequences_reverse_and_length():
    f = lambda c, x: (c * 10 + x, None)
    assert int(onescan.scan(f, 0, [1, 2, 3], 3, reverse=True)[0]) == 321


def test_sequences_under_jit_and_grad():
    def value(scale):
        return onescan.scan(lambda c, x: (c + scale * x, None), 0.0, [1, 2, 3])[0]

    assert float(jax.jit(jax.grad(value))(2.0)) == 6.0


def test_what_jax_accepts_keeps_its_meaning():
    """A list of arrays is a container, not a sequence."""
    xs = [jnp.arange(3), jnp.arange(3) * 2]
    f = lambda c, x: (c + x[0] * x[1], x)
    assert_same(onescan.scan(f, 0, xs), jax.lax.scan(f, 0, xs))
    assert_same(onescan.scan(f, 0, tuple(xs)), jax.lax.scan(f, 0, tuple(xs)))


class Point(NamedTuple):
    x: Any
    y: Any


NOT_SEQUENCES = [Point(1, 2), {"a": [1, 2]}, [[1, 2], [3, 4]], [(1, 2)], [1, None]]


@pytest.mark.parametrize("xs", NOT_SEQUENCES, ids=repr)
@SCANS
def test_what_is_not_a_flat_sequence_is_refused_as_in_jax(scan, xs):
    f = lambda c, x: (c, x)
    with pytest.raises(ValueError, match="no leading axis"):
        jax.lax.scan(f, 0, xs)
    with pytest.raises(onescan.ScanValueError, match="no leading axis"):
        scan(f, 0, xs)


def test_numbers_too_large_for_their_type():
    with pytest.raises(OverflowError, match=r"too large|out of bounds"):
        onescan.scan(lambda c, x: (c, x), 0, [2**40])
