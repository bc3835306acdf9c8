"""Complex numbers in a body: every operation as XLA has it, in lanes and in vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from engines import kernels_alone
from jax import lax
from passing import loop_of

import onescan
from onescan.passes.pairs import pairs
from onescan.passes.split import improved
from onescan.targets import target_of, trial
from onescan.tune.speed import Speed


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


def numbers(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    parts = rng.normal(size=(2, *shape))
    return jnp.asarray((parts[0] + 1j * parts[1]).astype(dtype))


CASES: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, y: [x + y, x - y, x * y, x / y, -x, x * 2.0, 1j * x.real],
    "parts": lambda x, y: [x.real, x.imag, jnp.conj(x), jnp.abs(x), jnp.angle(y)],
    "powers": lambda x, y: [x**2, x**5, y**-3, x**0, jnp.square(y)],
    "functions": lambda x, y: [
        f(x) for f in (jnp.exp, jnp.log, jnp.sqrt, jnp.sin, jnp.cos, jnp.tanh)
    ],
    "others": lambda x, y: [jax.nn.sigmoid(x), jnp.sign(y), x == y, x != y],
    "sums": lambda x, y: [x.sum(), jnp.cumsum(y), x.mean(0)],
    "products": lambda x, y: [x @ y, jnp.vdot(x, y), jnp.outer(x, y)],
    "products of other types": lambda x, y: [  # which `jnp.einsum` leaves as they are
        *(jnp.einsum("i,i", x.real, y), jnp.einsum("i,j->ji", x, y.imag)),
        jnp.einsum("i,i", jnp.arange(x.size), y),
        jnp.einsum("i,i", jnp.where(x.real > 9, jnp.nan, x.real), y.at[0].set(jnp.inf)),
    ],
    "moved": lambda x, y: [
        *(x[::-2], jnp.roll(y, 2), jnp.concatenate([x, y])),
        *(jnp.where(x.real > 0, x, y), x.reshape(2, -1).T, jnp.pad(x, 1)),
    ],
    "indexed": lambda x, y: [
        *(x[jnp.array([1, 3])], x.at[jnp.array([0, 2])].add(y[:2]), x.at[1].set(0)),
        lax.dynamic_slice(x, (jnp.int32(x[0].real > 0),), (2,)),
    ],
    "joined": lambda x, y: [  # of lanes and of a number that they share
        jax.vmap(lambda a: lax.complex(a, y.imag[0]))(x.real),
        jax.vmap(lambda a: lax.complex(y.real[0], a))(x.imag),
    ],
    "converted": lambda x, y: [x.astype("complex128"), x.real.astype("complex64") + y],
    "inner scan": lambda x, y: lax.scan(lambda c, z: (c * z + 1, c.real), x[0], y),
    "inner branch": lambda x, y: lax.cond(
        jnp.sum(x.real) > 0, lambda a: a * 2, lambda a: a + 1j, x
    ),
    "gradient": lambda x, y: jax.grad(lambda a: jnp.abs(jnp.sum(a * jnp.exp(y))))(x),
    "gradient of tanh": lambda x, y: jax.grad(lambda a: jnp.abs(jnp.tanh(a).sum()))(x),
}


def both(f: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """By a kernel, and by XLA: f of a carry that no pass can take out."""

    def step(carry: Any, _: Any) -> Any:
        return jax.tree.map(lambda x: x + 0, carry), f(*carry)

    run = lambda *xs: onescan.scan(step, xs, None, length=2)
    with onescan.engine("native"):
        ours = jax.jit(run)(*args)
    with onescan.engine("xla"):
        return ours, jax.jit(run)(*args)


@pytest.mark.parametrize("name", CASES)
def test_as_xla_has_it(name: str) -> None:
    assert_same(*both(CASES[name], numbers(6), numbers(6, seed=1)), rounding=4)


@pytest.mark.parametrize("name", ["arithmetic", "functions", "products", "indexed"])
def test_in_lanes(name: str) -> None:
    args = numbers(17, 6), numbers(17, 6, seed=1)
    assert_same(*both(jax.vmap(CASES[name]), *args), rounding=4)


def test_in_double() -> None:
    args = numbers(5, 5, dtype=np.complex128), numbers(5, 5, dtype=np.complex128)
    assert_same(*both(lambda x, y: x @ y / (1 + jnp.exp(x)), *args), rounding=4)


def test_a_while_loop() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: jnp.abs(c) < 9, lambda c: c * (1.5 + 1j), x[0])

    assert_same(*both(f, numbers(3)), rounding=4)


@pytest.mark.parametrize("way", ["set", "add", "subtract"])
def test_updates_that_leave_a_while_loop(way: str) -> None:
    """They run by XLA there, which has to know what an update does to each part."""

    def f(x: Any) -> Any:
        def round_(state: Any) -> Any:
            at, c = state
            made = getattr(jnp.outer(x, x).at[1:], way)(jnp.outer(x[1:], x))
            return at + 1, 0.5 * c + made

        short = lambda state: (state[0] < 20) & (jnp.abs(state[1]).sum() < 1e6)
        return lax.while_loop(short, round_, (0, jnp.full((6, 6), 9 + 0j)))

    onescan.clear_report()
    assert_same(*both_whiles(f, numbers(6)), rounding=64)
    (row,) = onescan.report().rows
    assert "once instead of in every round" in "".join(row.notes)


def both_whiles(f: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    with onescan.switches.using(installed=True, engine="native"):
        ours = jax.jit(lambda *xs: f(*xs))(*args)
    return ours, jax.jit(lambda *xs: f(*xs))(*args)


def test_a_constant_of_a_function_inside() -> None:
    """Its value is a `jax.Array`, whose parts must not be traced."""
    constant = jnp.array([1 + 1j, -2], jnp.complex64)
    turned = jax.jit(lambda z: 0.1 * constant * z)
    loop = lambda z: lax.while_loop(lambda z: jnp.abs(z).sum() > 1e-3, turned, z)
    z = jnp.ones(2, jnp.complex64)
    with onescan.switches.using(installed=True, engine="native"):
        ours = jax.jit(lambda z: loop(z))(z)
    assert_same(ours, jax.jit(lambda z: loop(z))(z))


def test_quotients_and_sizes_do_not_overflow() -> None:
    large = jnp.asarray([3e30 + 4e30j, 1e-30 + 1e-30j, 1e38, 0, 1j], "complex64")
    ours, xla = both(lambda x: [jnp.abs(x), x / (x + 1e-38)], large)
    np.testing.assert_allclose(ours[1][0], xla[1][0], rtol=1e-6)
    np.testing.assert_allclose(ours[1][1], xla[1][1], rtol=1e-5)


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (jnp.cumprod, "`cumprod` at .* has no native rule for complex numbers"),
        (jnp.fft.fft, "`fft` at .* is of 12 points; kernels have powers of two"),
    ],
)
def test_what_has_no_definition_is_left(f: Any, reason: str) -> None:
    def step(c: Any, _: Any) -> Any:
        return f(2 * c), None

    jax.jit(lambda c: onescan.scan(step, c, None, length=3)[0])(numbers(12))
    row = onescan.report().rows[-1]
    assert row.engine == "xla"
    assert re.search(reason, str(row.reason))


def test_xla_is_tried_with_complex_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As stock JAX runs them, and kernels take them, not as pairs."""
    loop, _ = loop_of(lambda c, x: (c * x, c.real), numbers(4), numbers(9, 4))
    (split,) = improved(loop, [pairs])
    target = target_of("cpu")
    plan = target.plan(split.loop)
    monkeypatch.setattr(trial, "measured", lambda ours, theirs: (ours, theirs))
    ours, theirs = trial.tried(
        target, plan, target.build(plan), Speed(1e-6, 1e-6), None
    )  # type: ignore[misc]
    is_complex = lambda a: np.issubdtype(a.dtype, np.complexfloating)
    assert [is_complex(a) for a in theirs.types] == [True, True]
    assert [is_complex(a) for a in ours.types] == [True, True]
