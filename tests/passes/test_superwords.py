"""Scalars that go through the same function side by side."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from engines import assert_engines_agree
from jax import lax
from passing import loop_of

import onescan
from onescan.passes.superwords import superwords

STATE = tuple(jnp.float32(v) for v in (0.3, -1.2, 2.5, 0.1))


def shapes(
    f: Any, name: str, carry: Any = STATE, xs: Any = None, ulps: int = 64
) -> list[Any]:
    """The shapes that a function is computed of, in the body of a loop."""
    loop, _ = loop_of(f, carry, xs, length=None if xs is not None else 4)
    split = superwords(loop)
    body = (split.loop if split else loop).body.jaxpr
    found = [eqn for eqn in body.eqns if eqn.primitive.name == name]
    assert_engines_agree(lambda c: lax.scan(f, c, xs, length=4), carry, ulps=ulps)
    return [eqn.outvars[0].aval.shape for eqn in found]


def test_what_waits_for_nothing_of_each_other_is_one_vector():
    def step(s, _):
        a, b, c, d = s
        return (jnp.exp(-a), jnp.exp(-b * b), jnp.exp(c - 3), jnp.exp(d - a)), None

    assert shapes(step, "exp") == [(4,)]


def test_five_are_two_vectors():
    def step(s, _):
        a, b, c, d = map(jnp.tanh, s)
        return (a + b, b, c, d), jnp.tanh(s[0] + s[1])

    assert shapes(step, "tanh") == [(8,)]


def test_many_are_several_vectors():
    def step(s, _):
        return s, sum(jnp.exp(s[0] * k - 2) for k in range(18))

    assert shapes(step, "exp") == [(16,), (), ()]


def test_in_a_while_loop():
    def step(s):
        return [-0.9 * jnp.tanh(x + y) for x, y in zip(s, [*s[1:], s[0]], strict=True)]

    def rounds(s):
        again, start = lambda c: c[0] < 9, (0, list(s))
        return lax.while_loop(again, lambda c: (c[0] + 1, step(c[1])), start)

    assert_engines_agree(rounds, STATE, ulps=64)
    assert "inside" in onescan.report().rows[-1].passes


def test_what_waits_stays_behind():
    """Three wait for nothing, three for one of these; what is between them moves."""

    def step(s, _):
        a, b, c, d = s
        first = jnp.log1p(a * a)
        second = jnp.log1p(first * first)
        third = jnp.log1p(b * b)
        fourth = jnp.log1p(third + 1)
        fifth = jnp.log1p(c * c)
        return (second, fourth, jnp.log1p(fifth + d * d), d * 0.5), first + third

    assert shapes(step, "log1p") == [(4,), (4,)]


def test_two_stay_alone():
    def step(s, _):
        a, b, c, d = s
        return (jnp.exp(-a * a), jnp.tanh(b), jnp.exp(-c * c), d), None

    assert shapes(step, "exp") == [(), ()]


@pytest.mark.parametrize(("count", "found"), [(1, [(), (), ()]), (3, [(4,)] * 3)])
def test_a_few_sines_stay_alone(count: int, found: list[Any]):
    """Small ones are quick; many are in each other's way."""

    def step(s, _):
        for _ in range(count):
            s = [jnp.sin(v) for v in s[:3]] + [s[3]]
        return tuple(s), None

    assert shapes(step, "sin") == found


def test_vectors_and_cheap_functions_stay():
    def step(s, _):
        a, b, c, d = s
        return (jnp.exp(a), jnp.exp(b), jnp.exp(c), d), None

    vectors = tuple(jnp.linspace(-1, 0, 5) - k for k in range(4))
    assert shapes(step, "exp", vectors) == [(5,)] * 3

    def cheap(s, _):
        a, b, c, d = s
        return (abs(a), abs(b), abs(c), abs(d)), None

    assert shapes(cheap, "abs") == [()] * 4


def test_types_and_parameters_are_kept_apart():
    def step(s, _):
        a, b, c, d = s
        half = [jnp.exp(v.astype(jnp.bfloat16)) for v in (a, b)]
        return (jnp.exp(-a * a), jnp.exp(-b * b), sum(half).astype(jnp.float32), d), c

    # XLA keeps sums of bfloat16 in float32
    assert set(shapes(step, "exp", ulps=4 << 16)) == {()}


def test_updates_in_memory_and_inner_loops_stay_right():
    def step(s, x):
        table, a, b, c = s
        old = table[2]
        table = table.at[1].set(jnp.tanh(a))
        b = lax.fori_loop(0, 3, lambda _, v: v * 0.5 + old, jnp.tanh(b))
        table = table.at[2].add(b)
        return (table, jnp.tanh(c + table[1]), b, jnp.tanh(c)), table.sum() + old * x

    state = (jnp.linspace(0, 1, 5), *STATE[:3])
    xs = jnp.linspace(-1, 1, 4)
    assert (4,) in shapes(step, "tanh", state, xs)


def test_a_pendulum_tells_of_it():
    def slope(y):
        a, b, v, w = y
        d = a - b
        more = jnp.sin(a), jnp.sin(d), jnp.sin(b), jnp.cos(d), jnp.cos(a), jnp.cos(b)
        return jnp.stack([v, w, sum(more[:3]), sum(more[3:]) - v])

    def step(y, _):
        half = y + 0.01 * slope(y)
        return y + 0.02 * slope(half), None

    onescan.clear_report()
    f = jax.jit(lambda y: onescan.scan(step, y, None, length=9)[0])
    f(jnp.ones(4))
    assert "computed 12 functions of scalars side by side" in str(onescan.report())
