"""Every number type, and types that are weak, come out as from `jax.lax.scan`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same, types_of
from jax.core import ShapedArray

import onescan
from onescan import switches
from onescan.api import reference

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
COMPLEX = ["complex64", "complex128"]


def mix(c, x):
    c = c * x + c
    return c, (c, x)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + COMPLEX)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_number_type(dtype, reverse):
    with jax.enable_x64(True):
        init = jnp.asarray([3, 5], dtype)
        xs = jnp.asarray([[1, 2], [3, 4], [1, 1], [0, 2]], dtype)
        result = onescan.scan(mix, init, xs, reverse=reverse)
        assert result[0].dtype == dtype
        assert_same(result, jax.lax.scan(mix, init, xs, reverse=reverse))
        assert_same(result, reference.scan(mix, init, xs, reverse=reverse))


def test_float64_keeps_its_digits():
    def f(c, x):
        return c + x, c * x

    with jax.enable_x64(True):
        init, xs = jnp.float64(1 / 3), jnp.linspace(0, 1, 50)
        total, products = onescan.scan(f, init, xs)
        assert abs(float(total) - (1 / 3 + 25)) < 1e-13
        assert_same((total, products), jax.lax.scan(f, init, xs))


def test_bools():
    def f(c, x):
        return c & ~x, c | x

    xs = jnp.array([True, False, False, True])
    result = onescan.scan(f, jnp.array(True), xs)
    assert_same(result, (jnp.array(False), jnp.array([True, False, False, True])))
    assert_same(result, reference.scan(f, jnp.array(True), xs))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("length", [0, 3])
def test_typed_keys(impl, length):
    def f(key, x):
        key, now = jax.random.split(key)
        return key, (now, jax.random.key_data(x)[0])

    xs = jax.random.split(jax.random.key(1, impl=impl), length)
    init = jax.random.key(0, impl=impl)
    result = onescan.scan(f, init, xs)
    assert result[1][0].dtype == init.dtype
    assert_same(result, jax.lax.scan(f, init, xs))
    assert_same(result, reference.scan(f, init, xs))


def plus(c, x):
    return c + x, c


def half(c, _):
    return c * 0.5, c * 2


def constants(c, x):
    return 1.5, (2, True, 1j)


def through(c, x):
    return c, (c, x)


def first_only(c, x):
    a, b = c
    return (a + x, b), (a, b, 1)


WEAK = [
    (plus, 0, np.arange(3, dtype="float32")),
    (plus, 0, np.arange(3, dtype="int32")),
    (plus, 0, np.arange(3, dtype="int8")),
    (plus, 0, jnp.arange(3, dtype="bfloat16")),
    (plus, 0.5, jnp.arange(3, dtype="float16")),
    (plus, 0.5, jnp.arange(3, dtype="bfloat16")),
    (plus, 1, jnp.arange(3) * 1j),
    (plus, True, np.arange(3, dtype="int32") > 1),
    (plus, jnp.asarray(2), np.arange(3, dtype="uint8")),
    (half, 1, None),
    (half, 1.0, None),
    (half, jnp.bfloat16(1), None),
    (constants, 0, None),
    (constants, 0.5, None),
    (through, 1, np.arange(3, dtype="int8")),
    (through, np.float32(1), jnp.asarray([1, 2, 3])),
    (first_only, (0, 0), np.arange(3, dtype="float32")),
    (first_only, (0, jnp.int32(0)), np.arange(3, dtype="int16")),
]


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize(("f", "init", "xs"), WEAK)
def test_weak_types_are_promoted_as_jax_does(f, init, xs, length):
    xs = None if xs is None else xs[:length]
    result = onescan.scan(f, init, xs, length=length)
    expected = jax.lax.scan(f, init, xs, length=length)
    assert types_of(result) == types_of(expected)
    assert_same(result, expected)
    assert_same(result, reference.scan(f, init, xs, length=length))


def test_a_weak_carry_stays_weak_inside_the_body():
    """With a weak c, c * x has the type of x, in every step."""

    def f(c, x):
        return c * jnp.float32(0.5), c * x

    init, xs = 1.0, jnp.ones(3, jnp.bfloat16)
    _, ys = onescan.scan(f, init, xs)
    assert ys.dtype == jnp.bfloat16
    assert_same(onescan.scan(f, init, xs), jax.lax.scan(f, init, xs))
    assert_same(reference.scan(f, init, xs), jax.lax.scan(f, init, xs))


def test_64_bit_types_where_they_are_not_enabled():
    """JAX lets a program hold both kinds; what we trace for a loop has to as well."""

    def f(carry, x):
        with jax.enable_x64(True):
            wide = (carry.astype(jnp.int64) << 40) + 2**33
        return carry, (wide, x)

    assert_as_stock(lambda: jax.lax.scan(f, jnp.int32(2), jnp.arange(4)))


def assert_as_stock(program):
    """The same, and nothing went wrong inside the engine: warnings are errors."""
    with onescan.engine("xla"):
        expected = program()
    with switches.using(installed=True):
        assert_same(program(), expected)


def test_types_of_the_users_making_stay_with_xla():
    class Rules:
        allow_conversion = True

        @staticmethod
        def physical_element_aval(dtype):
            return ShapedArray((), jnp.float32)

    extended: Any = type(jax.random.key(0).dtype).__base__

    class Scale(extended):
        name = "scale"
        _rules = Rules
        type = jax.dtypes.extended

    def body(scale, x):
        number = jax.lax.convert_element_type(scale, jnp.float32) * x
        return jax.lax.convert_element_type(number, scale.dtype), number

    def program():
        init = jax.lax.convert_element_type(jnp.float32(2), Scale())
        return jax.lax.scan(body, init, jnp.arange(1.0, 4.0))[1]

    onescan.clear_report()
    assert_as_stock(jax.jit(program))
    (row,) = onescan.report().rows
    assert str(row.reason).endswith("values have no native rule")
