"""A region inside a traced function holds for exactly the loops traced in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import onescan
from onescan.lowering import hook
from onescan.lowering.outcome import Left


@pytest.fixture(autouse=True)
def clean():
    onescan.clear_report()
    jax.clear_caches()
    onescan.install()
    yield
    onescan.uninstall()


@pytest.fixture
def taken(monkeypatch):
    return fakes.use_engine(monkeypatch)


def inside(c, x):
    return 0.9 * c + jnp.sin(x), c


def outside(c, x):
    return 0.5 * c + jnp.sin(x), c


def both(xs):
    """One loop for onescan, and one in a region that is stock JAX's."""
    a, _ = lax.scan(outside, 0.0, xs)
    with onescan.engine("xla"):
        b, _ = lax.scan(inside, 0.0, xs)
    return a + b


def names(taken: list[Any]) -> set[str]:
    return {loop.name for loop in taken}


XS = jnp.linspace(0.0, 1.0, 6)
WAYS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: jax.jit(f)(XS),
    "grad": lambda f: jax.jit(jax.grad(f))(XS),
    "grad, not compiled": lambda f: jax.grad(f)(XS),
    "grad of jit": lambda f: jax.grad(jax.jit(f))(XS),
    "vmap": lambda f: jax.jit(jax.vmap(f))(jnp.stack([XS, XS])),
    "vmap of jit": lambda f: jax.vmap(jax.jit(f))(jnp.stack([XS, XS])),
    "remat": lambda f: jax.jit(jax.grad(jax.checkpoint(f)))(XS),
    "jvp": lambda f: jax.jit(lambda xs: jax.jvp(f, (xs,), (xs,)))(XS),
    "hessian": lambda f: jax.jit(jax.hessian(f))(XS),
    "in a loop": lambda f: jax.jit(lambda xs: lax.map(f, xs))(jnp.stack([XS, XS])),
    "ahead of time": lambda f: jax.jit(f).lower(XS).compile()(XS),
}


@pytest.mark.parametrize("way", WAYS)
def test_only_the_loops_of_the_region(taken, way):
    found = WAYS[way](both)
    assert "outside" in names(taken)
    assert "inside" not in names(taken)
    with onescan.engine("xla"):
        expected = WAYS[way](both)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-6), found, expected)


def test_our_own_scan_too(taken):
    @jax.jit
    def f(xs):
        with onescan.engine("xla"):
            return onescan.scan(inside, 0.0, xs)[0]

    onescan.uninstall()
    f(XS)
    assert not taken


def test_loops_in_bodies(taken):
    def nested(xs):
        def step(c, x):
            return c + lax.scan(inside, x, xs)[0], None

        with onescan.engine("xla"):
            return lax.scan(step, 0.0, xs)[0]

    jax.jit(nested)(XS)
    jax.jit(jax.grad(nested))(XS)
    assert not taken


def test_a_region_in_a_body_keeps_the_loop_around_it(taken):
    def step(c, x):
        with onescan.engine("xla"):
            d, _ = lax.scan(inside, c, XS)
        return d + lax.scan(outside, c, XS)[0], None

    jax.jit(lambda xs: lax.scan(step, 0.0, xs)[0])(XS)
    assert names(taken) == {"outside"}
    reasons = [row.reason for row in onescan.report().rows if row.name == "step"]
    assert reasons == ['a loop in its body is in a region of engine("xla")']


def test_the_innermost_region_wins(taken):
    @jax.jit
    def f(xs):
        with onescan.engine("auto"):
            return lax.scan(inside, 0.0, xs)[0] + both(xs)

    with onescan.engine("xla"):
        f(XS)
    assert [loop.name for loop in taken] == ["inside", "outside"]


def test_the_same_body_in_and_outside_of_a_region(taken):
    @jax.jit
    def f(xs):
        with onescan.engine("xla"):
            a, _ = lax.scan(inside, 0.0, xs)
        b, _ = lax.scan(inside, 0.0, xs)
        return a, b

    a, b = f(XS)
    assert len(taken) == 1
    np.testing.assert_allclose(a, b, 1e-6)


def test_a_function_that_is_compiled_already(taken):
    inner = jax.jit(lambda xs: lax.scan(outside, 0.0, xs)[0])
    inner(XS)
    assert len(taken) == 1

    def f(xs):
        with onescan.engine("xla"):
            return inner(xs)

    jax.jit(f)(XS)
    assert len(taken) == 1


def test_nothing_is_traced_or_compiled_twice(taken):
    traced = []

    @jax.jit
    def f(xs):
        traced.append(None)
        return both(xs)

    for _ in range(3):
        f(XS)
    assert len(traced) == 1
    assert names(taken) == {"outside"}


def test_options_reach_the_engine(monkeypatch):
    seen = {}

    def leave(loop, platform, settings):
        seen[loop.name] = settings
        return Left("of the test")

    monkeypatch.setattr(hook, "compile_loop", leave)

    @jax.jit
    def f(xs):
        with onescan.options(memory=1000), onescan.options(sequential=True):
            a, _ = lax.scan(inside, 0.0, xs)
        return a + lax.scan(outside, 0.0, xs)[0]

    f(XS)
    assert (seen["inside"].memory, seen["inside"].sequential) == (1000, True)
    assert (seen["outside"].memory, seen["outside"].sequential) == (None, False)


def test_native_inside_a_function_says_why_not(monkeypatch):
    fakes.use_leaving_engine(monkeypatch, "of the test")

    @jax.jit
    def f(xs):
        with onescan.engine("native"):
            return lax.scan(inside, 0.0, xs)[0]

    with pytest.raises(onescan.EngineError, match=r"inside.* left to XLA: of the test"):
        f(XS)


def test_a_region_around_a_call_marks_nothing():
    with onescan.engine("xla"):
        text = jax.jit(both).lower(XS).as_text()
    assert "onescan_engine" in text  # of the region inside
    outside_only = jax.jit(lambda xs: lax.scan(outside, 0.0, xs)[0])
    with onescan.engine("xla"):
        assert "onescan" not in outside_only.lower(XS).as_text()
