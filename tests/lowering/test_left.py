"""What XLA is given of a loop that it keeps."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_same, run
from jax import lax

import onescan
from onescan import switches
from onescan.lowering import hook
from onescan.targets.cpu.target import Cpu
from onescan.tune.choose import Choice
from onescan.tune.speed import Speed


@pytest.mark.parametrize(
    ("size", "passes"),
    [
        (1, ("ahead", "hoist", "simplify")),  # products of all steps are one large one
        (
            2048,
            (),
        ),  # one step's is large enough; that w * 0.5 is computed once is nothing
    ],
)
def test_a_large_step_is_not_taken_apart(size: int, passes: tuple[str, ...]) -> None:
    def step(carry, x):
        a, b = carry
        b = 0.9 * b + jnp.tanh(a @ (w * 0.5)).sum()
        general = jnp.linalg.eigvals(jnp.full((2, 2), b))  # no kernel takes that
        return (jnp.tanh(a + x), b + general[0].real), None

    w = jnp.ones((200, 64))
    carry, xs = (jnp.zeros((size, 200)), jnp.zeros(())), jnp.zeros(64)
    onescan.clear_report()
    jax.jit(lambda c, x: onescan.scan(step, c, x)).lower(carry, xs)
    (row,) = onescan.report().rows
    assert row.engine == "xla"
    assert row.passes == passes


TAKEN = "simplify", "hoist"


@pytest.mark.parametrize(
    ("steps", "batch", "passes"), [(64, 1, TAKEN), (2, 1, ()), (64, 64, ())]
)
def test_a_batch_of_products_stays_in_a_step(
    steps: int, batch: int, passes: tuple[str, ...]
) -> None:
    """All steps together are a larger batch of the same, which gains nothing.

    Nor does a batch of a few steps, such as the layers of a network.
    """

    def step(carry, x):
        query, key = x
        score = jnp.einsum("bqd,bkd->bqk", query, key)
        general = jnp.linalg.eigvals(jnp.full((2, 2), carry))  # no kernel takes that
        return carry + score.sum() + general[0].real, None

    xs = jax.ShapeDtypeStruct((steps, batch, 32, 32), "float32")
    onescan.clear_report()
    jax.jit(lambda c, x: onescan.scan(step, c, x)).lower(0.0, (xs, xs))
    (row,) = onescan.report().rows
    assert row.engine == "xla"
    assert row.passes == passes


@pytest.mark.parametrize("dear", [True, False])
def test_dear_invariants_leave_a_while_loop(dear: bool) -> None:
    """XLA takes nothing out that is larger than what it is made of."""

    def f(x: Any, grid: Any) -> Any:
        def round_(s: Any) -> Any:
            general = jnp.linalg.eigvals(jnp.full((2, 2), s[1]))  # no kernel takes that
            reward = grid[:, None] + grid
            reward = (reward + 1.0) ** 2.5 if dear else reward
            new = jnp.max(reward + 0.5 * s[0], axis=1)
            return new, 0.5 * s[1] + 1e-3 * general[0].real

        return lax.while_loop(lambda s: s[1] > 1e-3, round_, (x, 1.0))

    args = jnp.zeros(40), jnp.linspace(0, 1, 40)
    onescan.clear_report()
    with switches.using(installed=True):
        ours = jax.jit(f)(*args)
    (row,) = onescan.report().rows
    assert row.engine == "xla"
    assert ("hoist" in row.passes) == dear
    assert ("once instead of in every round" in "".join(row.notes)) == dear
    assert_same(ours, run("xla", f, *args), 4)


@pytest.mark.parametrize(
    ("size", "strict", "engine"),
    [(3, False, "xla"), (200_000, False, "native"), (3, True, "native")],
)
def test_brief_loops_of_jax_itself_stay(size: int, strict: bool, engine: str) -> None:
    """A program that makes its keys has a dozen, and each took 0.05 s to compile."""
    key = jax.random.key(0)
    onescan.clear_report()
    with switches.using(installed=True, strict=strict):
        jax.jit(lambda k: jax.random.uniform(k, (size,))).lower(key)
    (row,) = onescan.report().rows
    assert row.engine == engine
    assert (row.reason is None) == (engine == "native")


@pytest.mark.parametrize(("size", "inside"), [(3, set()), (3000, {"native"})])
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="XLA for CPUs makes them")
def test_loops_inside_of_a_small_one_stay_with_it(size: int, inside: set[str]) -> None:
    """XLA makes one kernel of both, where a call in each step would cost more."""

    def step(c, k):
        turn = lambda i, c: jnp.cos(c) + i * 0.01
        return lax.fori_loop(0, k, turn, c), c.sum()

    def slow(self, plan, kernel, settings):
        return None if plan.loop.is_while else Choice(False, Speed(8e-6, 4e-6))

    onescan.clear_report()
    jax.clear_caches()
    hook._of_the_same.cache_clear()
    c, ks = jnp.linspace(0, 1, size), jnp.arange(5)
    with mock.patch.object(Cpu, "choice", slow), switches.using(installed=True):
        ours = jax.jit(lambda c, ks: lax.scan(step, c, ks))(c, ks)
    rows = onescan.report().rows
    assert rows[0].engine == "xla"
    assert {row.engine for row in rows[1:]} == inside
    theirs = jax.jit(lambda c, ks: lax.scan(step, c, ks))(c, ks)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, theirs)


def test_a_few_rounds_in_a_step_of_xla_are_not_worth_a_call() -> None:
    def step(c: Any, x: Any) -> Any:
        far, near = lambda s: jnp.abs(s * s - c) > 1e-5, lambda s: 0.5 * (s + c / s)
        root = lax.while_loop(far, near, x)
        (most,), _ = lax.approx_max_k(jnp.stack([root, 1.0, 0.5]), 1)
        return jnp.tanh(most) + 1.0, root

    onescan.clear_report()
    jax.jit(lambda xs: onescan.scan(step, 1.0, xs)).lower(jnp.ones(300))
    assert {row.engine for row in onescan.report().rows} == {"xla"}


def test_what_xla_keeps_as_a_whole_has_functions_of_its_own(monkeypatch: Any) -> None:
    """One that is called outside as well has a kernel there, and none inside."""

    @jax.jit
    def smooth(x: Any) -> Any:
        return onescan.scan(lambda c, _: (jnp.sin(c) + x, None), x, None, length=9)[0]

    def f(x: Any) -> Any:
        rounds = lambda state: (smooth(state[0]), state[1] + 1)
        return lax.while_loop(lambda s: s[1] < 5, rounds, (smooth(x), 0))[0]

    chosen = lambda target, plan, *_: Choice(not plan.loop.is_while, Speed(1e-6, 1e-6))
    monkeypatch.setattr(Cpu, "choice", chosen)
    with switches.using(installed=True):
        program = jax.jit(f).lower(jnp.float32(0.5)).as_text()
    assert program.count("@onescan_kernel") == 1
