"""Sums over lanes and steps: a total for each lane, and one sum after the loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import run
from jax import lax
from jax.interpreters.ad import add_jaxvals
from passing import assert_same, core_of, loop_of, notes_of, shown, splits_of

import onescan
from onescan.passes import PASSES
from onescan.passes.accumulate import accumulate
from onescan.passes.partial_sums import MOST, partial_sums

STATE = jnp.linspace(-1.0, 1.0, 4 * 16).reshape(4, 16)
ZERO = jnp.float32(0)


def collecting(add: Any) -> Any:
    """A loop whose second carry has something of all lanes added."""

    def step(carry: Any, x: Any) -> Any:
        h, total = carry
        h = jnp.tanh(h + x)
        return (h, add(total, h)), None

    return step


SUMS = {
    "sum": lambda t, h: t + h.sum(),
    "mean": lambda t, h: t + h.mean(),
    "less": lambda t, h: t - (h * h).sum() / 3,
    "two of them": lambda t, h: t + h.sum() + (h * h).sum(),
    "on both sides": lambda t, h: (h * 2).sum() + t,
    "of a sum": lambda t, h: t + (h * h).sum(0).sum(),
    "turned": lambda t, h: t - 2 * h.T.sum(),
}


@pytest.mark.parametrize("name", SUMS)
def test_each_lane_has_a_total(name: str) -> None:
    init = STATE, jnp.float32(3)
    xs = jnp.linspace(-1.0, 1.0, 5)
    loop, args = loop_of(collecting(SUMS[name]), init, xs)
    (split,) = splits_of(loop, partial_sums)
    body = "\n".join(shown(split.loop.body))
    assert "reduce_sum" not in body
    totals = 2 if name == "two of them" else 1
    assert split.loop.num_carry == 1 + 2 * totals  # and what these lose
    assert_same(loop, [split], args)


def test_the_body_that_is_left() -> None:
    loop, _ = loop_of(collecting(SUMS["mean"]), (STATE, ZERO), jnp.ones(5))
    splits = splits_of(loop, partial_sums)
    assert shown(core_of(splits).body) == [
        "in  a:float32[4,16] b:float32[4,16] c:float32[4,16] d:float32[]",
        "e:float32[4,16] = add a d",
        "f:float32[4,16] = tanh e",
        "g:float32[4,16] = add b f",
        "h:float32[4,16] = sub g b",
        "i:float32[4,16] = sub f h",
        "j:float32[4,16] = add c i",
        "out f g j",
    ]
    assert notes_of(splits[-1]) == [
        "took 1 sum (t + h.mean(), test_partial_sums.py:0) over steps in each lane, "
        "then over lanes"
    ]


def test_rows_share_weights() -> None:
    """The gradient of what all rows share is a total for each row."""

    def loss(weights: Any, xs: Any) -> Any:
        rows = lambda xs: lax.scan(lambda h, x: (h * weights + x, h), xs[0], xs)[1]
        return jnp.sum(jnp.sin(jax.vmap(rows)(xs)))

    weights = jnp.linspace(0.1, 0.9, 3)
    xs = jnp.linspace(-1.0, 1.0, 20 * 7 * 3).reshape(20, 7, 3)
    gradient = jax.grad(loss, (0, 1))
    native, xla = (run(engine, gradient, weights, xs) for engine in ("native", "xla"))
    for ours, stock in zip(native, xla, strict=True):
        np.testing.assert_allclose(ours, stock, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("dtype", "taken"), [("int32", 1), ("uint8", 1), ("bfloat16", 0), ("float16", 0)]
)
def test_types(dtype: str, taken: int) -> None:
    """Numbers of two bytes would lose what a total of them has."""

    def step(carry: Any, x: Any) -> Any:
        h, total = carry
        h = h * 3 + x
        return (h, total + jnp.sum(h, dtype=h.dtype)), None

    init = jnp.arange(40).astype(dtype), jnp.zeros((), dtype)
    loop, args = loop_of(step, init, jnp.arange(5).astype(dtype))
    splits = splits_of(loop, partial_sums)
    assert len(splits) == taken
    if taken:
        assert_same(loop, splits, args)


def test_what_stays() -> None:
    def left(add: Any, state: Any = STATE, total: Any = ZERO) -> bool:
        loop, _ = loop_of(collecting(add), (state, total), jnp.ones(3))
        return partial_sums(loop) is None

    assert not left(SUMS["sum"])
    assert left(lambda t, h: t + h.max())
    assert left(lambda t, h: (t + h.sum()) * 0.5)  # read by more than the sum
    assert left(lambda t, h: t + h[0].sum() * t)
    assert left(lambda t, h: t + h, total=STATE)  # not over lanes
    assert left(lambda t, h: t + h.T @ h, total=jnp.zeros((16, 16)))
    assert left(SUMS["sum"], jnp.zeros(MOST // 4 + 1))  # too many totals
    mixed = lambda t, h: t + jnp.roll(h, 1).sum()
    step = lambda c, x: ((jnp.cumsum(c[0]), mixed(c[1], c[0])), None)
    loop, _ = loop_of(step, (jnp.ones(40), ZERO), jnp.ones(3))
    assert partial_sums(loop) is None  # nothing is independent without it either


WHOLE = jnp.arange(64).reshape(4, 16) % 7
HALVES = jnp.full((4, 16), 300, jnp.float16)
BYTES = (jnp.arange(64).reshape(4, 16) % 100).astype(jnp.int8)
#: a state, and what is added of it, which is no sum of what the steps would add
NOT_LINEAR = {
    "quotients of integers": (WHOLE, lambda h: lax.div(h.sum(), 3)),
    "floors": (WHOLE.astype(jnp.uint32), lambda h: h.sum() // jnp.uint32(3)),
    "products of bytes": (
        BYTES,
        lambda h: lax.dot_general(
            h,
            jnp.ones((16, 64), jnp.int8),
            (((1,), (0,)), ((), ())),
            preferred_element_type=jnp.int32,
        ),
    ),
    "halves that are widened": (HALVES, lambda h: h.mean().astype(jnp.float32)),
    "halves that are widened late": (
        HALVES.astype(jnp.float32),
        lambda h: (h.sum() / 64).astype(jnp.float16).astype(jnp.float32),
    ),
}


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_what_is_not_linear_in_these_numbers(name: str) -> None:
    """Wrong results, found by a tester: totals overflowed, or were rounded once."""
    state, term = NOT_LINEAR[name]

    def step(carry: Any, x: Any) -> Any:
        h, total = carry
        h = h + x
        return (h, total + term(h)), None

    xs = jnp.asarray([1] * 300, state.dtype)
    init = state, jnp.zeros_like(term(state))
    total = lambda *args: lax.scan(step, *args)[0][1]
    native, xla = (run(engine, total, init, xs) for engine in ("native", "xla"))
    np.testing.assert_allclose(native, xla, 1e-5)
    loop, _ = loop_of(step, init, xs)
    assert not splits_of(loop, partial_sums, accumulate)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32"])
def test_more_steps_than_a_small_type_counts(dtype: str) -> None:
    """It failed inside, with a warning."""
    one = jnp.ones((), dtype)
    add = lambda total, h: total + (jnp.sum(h, dtype=dtype) - 3 * one)
    step = lambda c, x: ((c[0] * 3 + x, add(c[1], c[0])), None)
    init, xs = (BYTES.astype(dtype), one), jnp.arange(300).astype(dtype)
    loop, args = loop_of(step, init, xs)
    assert_same(loop, splits_of(loop, partial_sums), args)


def test_lanes_share_numbers_of_a_vector() -> None:
    """Their gradients are sums, put together in the steps."""

    def loss(rates: Any, state: Any) -> Any:
        def step(z: Any, _: Any) -> Any:
            a, b = rates
            return z + 0.01 * jnp.stack([a * z[0] - z[0] * z[1], b * z[1]]), z

        rows = lambda z: lax.scan(step, z, None, 30)
        return jnp.sum(jnp.sin(jax.vmap(rows)(state)[1]))

    args = jnp.asarray([1.0, 0.3]), jnp.linspace(0.5, 1.5, 200).reshape(100, 2)
    gradient = jax.grad(loss, (0, 1))
    onescan.clear_report()
    native, xla = (run(engine, gradient, *args) for engine in ("native", "xla"))
    for ours, stock in zip(native, xla, strict=True):
        np.testing.assert_allclose(ours, stock, 1e-4, 1e-4)
    assert all(row.engine == "native" for row in onescan.report())
    assert "then over lanes" in " ".join(str(onescan.report()).split())


def test_long_chains_are_looked_through_in_part() -> None:
    def step(carry: Any, x: Any) -> Any:
        h, total = carry
        h, term = jnp.tanh(h + x), h.sum()
        for _ in range(2000):
            term = -term
        return (h, total + term), None

    loop, _ = loop_of(step, (STATE, ZERO), jnp.ones(3))
    assert partial_sums(loop) is None


def test_what_is_used_often_is_looked_at_once() -> None:
    def doubled(total: Any, h: Any) -> Any:
        term = h.sum()
        for _ in range(30):
            term = add_jaxvals(term, term) / 2
        return total + term

    loop, args = loop_of(collecting(doubled), (STATE, ZERO), jnp.ones(3))
    assert_same(loop, splits_of(loop, partial_sums), args)


SCALED = {
    "float16": lambda h: (h * h).sum() / h.size,
    "float32": lambda h: (h * 1e33).sum() * 1e-33,
}


@pytest.mark.parametrize("kind", SCALED)
def test_no_sum_of_steps_is_larger_than_it_should_be(kind: str) -> None:
    """Wrong results, found by a tester: inf, where each step is scaled down."""

    def step(carry: Any, x: Any) -> Any:
        h, total = carry
        h = jnp.tanh(0.5 * h + x)
        return (h, total + SCALED[kind](h)), None

    f = lambda h, zero, xs: lax.scan(step, (h, zero), xs)[0][1]
    args = [jnp.ones(shape, kind) for shape in (1024, (), 1000)]
    native, xla = (run(engine, f, *args) for engine in ("native", "xla"))
    np.testing.assert_allclose(native, xla, 2e-2)


def test_products_of_halves_are_scaled_in_each_step() -> None:
    def step(carry: Any, x: Any) -> Any:
        s, total = carry
        s = jnp.tanh(s + x)
        return (s, total + (s.T @ s) * 1e-4), None

    s, total = (jnp.zeros(shape, "float16") for shape in ((32, 64), (64, 64)))
    f = lambda s, total, xs: lax.scan(step, (s, total), xs)[0][1]
    xs = jnp.ones(3000, "float16")
    native, xla = (run(engine, f, s, total, xs) for engine in ("native", "xla"))
    np.testing.assert_allclose(native, xla, 2e-2)


DRIFTS = {
    "less a number": lambda drift, s, first: drift + (s.sum() - 1e6),
    "less the first": lambda drift, s, first: drift + (s.sum() - first),
    "one by one": lambda drift, s, first: drift + s.sum() - first,
    "two sums": lambda drift, s, first: drift + (s.sum() - s[::-1].sum()),
    "and by one": lambda drift, s, first: drift - s.sum() + s[::-1].sum(),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_what_is_left_of_sums_that_cancel(name: str) -> None:
    """Wrong results, found by a tester: large sums of steps have no small digits."""

    def f(s: Any, first: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            s, drift = carry
            s = 0.5 * s + x
            return (s, DRIFTS[name](drift, s, first)), None

        return lax.scan(step, (s, ZERO), xs)[0][1]

    s, xs = jnp.full(1024, 1e6 / 1024), jnp.full((2000, 1024), 0.5e6 / 1024)
    native, xla = (
        run(engine, f, s, jnp.float32(1e6), xs) for engine in ("native", "xla")
    )
    assert native == xla == 0


def test_totals_of_lanes_lose_nothing() -> None:
    """Wrong results, found by a tester: 56 where the momenta of all add up to 0."""
    momenta = np.random.default_rng(0).standard_normal(512).astype(np.float32)
    momenta = np.round((momenta - momenta.mean()) * 1024) / 1024
    momenta[0] -= momenta.sum()

    def f(momenta: Any, xs: Any) -> Any:
        step = lambda c, x: ((c[0] * x, c[1] + c[0].sum()), None)
        return lax.scan(step, (momenta, ZERO), xs)[0][1]

    xs = jnp.ones(20_000)
    native, xla = (run(engine, f, momenta, xs) for engine in ("native", "xla"))
    assert xla == 0
    assert abs(native) < 1


@pytest.mark.parametrize("worst", [np.inf, -np.inf, np.nan])
def test_infinite_totals(worst: float) -> None:
    def f(h: Any, xs: Any) -> Any:
        step = lambda c, x: ((c[0] + x, c[1] + c[0].sum()), None)
        return lax.scan(step, (h, ZERO), xs)[0][1]

    xs = jnp.ones(9).at[4].set(worst)
    native, xla = (run(engine, f, STATE, xs) for engine in ("native", "xla"))
    np.testing.assert_equal(np.asarray(native), np.asarray(xla))


def test_products_leave_the_loop_all_the_same() -> None:
    def loss(weights: Any, bias: Any, xs: Any) -> Any:
        step = lambda h, x: (jnp.tanh(h @ weights + bias + x), None)
        return lax.scan(step, jnp.zeros((32, 16)), xs)[0].sum()

    args = STATE.T @ STATE / 9, jnp.zeros(16), jnp.ones((20, 32, 16)) * STATE[0]
    onescan.clear_report()
    gradient = jax.grad(loss, (0, 1))
    native, xla = (run(engine, gradient, *args) for engine in ("native", "xla"))
    for ours, stock in zip(native, xla, strict=True):
        np.testing.assert_allclose(ours, stock, 1e-4, 1e-3)


def test_comes_before_what_would_stack() -> None:
    names = [getattr(p, "__name__", "") for p in PASSES]
    assert names.index("partial_sums") < names.index("accumulate")
