"""Positions that are the same in every step are held inside before the first one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from jax import lax
from kernels import by_kernel, by_xla, inputs_of, loop_in, plan_of

import onescan
from onescan.emit.math.features import AVX512
from onescan.targets.cpu import current, positions
from onescan.targets.cpu.build import build
from onescan.targets.cpu.machine import Machine, host
from onescan.targets.cpu.plan import choose

STEPS, EDGES = 9, 13
MODES = ("fill", "clip", "promise_in_bounds")


def read(mode: str, dtype: Any, rank: int) -> Any:
    """A loop that reads rows of its carry, in two ways if `rank` is 2."""

    def run(c: Any, places: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            at = c.at[tuple(places[k] for k in range(rank))]
            found = at.get(mode=mode, wrap_negative_indices=False)  # type: ignore[arg-type]
            return c * x + 0.01 * found.sum(), found

        return lax.scan(step, c, xs)

    shape = (7, 5)[:rank]
    return loop_in(
        run, jnp.ones(shape), jnp.ones((rank, EDGES), dtype), jnp.ones(STEPS)
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The positions that were made ready."""
    found: list[Any] = []
    held = positions._held

    def spy(*args: Any) -> Any:
        found.append(held(*args))
        return found[-1]

    monkeypatch.setattr(positions, "_held", spy)
    return found


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("mode", MODES)
def test_reads(mode: str, dtype: str, rank: int) -> None:
    """Whatever the positions are: those of the inputs are of any size."""
    loop = read(mode, dtype, rank)
    inputs = inputs_of(loop)
    assert_same(by_kernel(plan_of(loop), inputs), by_xla(loop, inputs), rounding=64)


def test_they_are_made_ready_once(made: list[Any]) -> None:
    loop = read("promise_in_bounds", "int32", 1)
    current().build(plan_of(loop))
    assert len(made) == 1
    assert made[0].inside is None  # a promise that is broken reads from inside


def test_unless_they_change(made: list[Any]) -> None:
    f = lambda c, xs: lax.scan(lambda c, x: (c[x], ()), c, xs)
    loop = loop_in(f, jnp.ones(EDGES), jnp.ones((STEPS, EDGES), "int32"))
    inputs = inputs_of(loop)
    assert_same(by_kernel(plan_of(loop), inputs), by_xla(loop, inputs))
    assert not made


def test_lanes_that_share_them() -> None:
    f = lambda c, p: lax.scan(lambda c, _: (jnp.sin(c[p]), c.sum()), c, length=STEPS)
    many = jax.vmap(f, (0, None))
    loop = loop_in(many, jnp.ones((64, EDGES)), jnp.arange(EDGES))
    inputs = inputs_of(loop)
    assert_same(by_kernel(plan_of(loop), inputs), by_xla(loop, inputs), rounding=64)


def test_positions_that_follow_from_the_program() -> None:
    """They have a maker, which is given nothing."""

    def run(xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            places = lax.broadcasted_iota("int32", (EDGES, 1), 0)
            return c, jnp.take(x, places[:, 0], axis=0, mode="clip")

        return lax.scan(step, jnp.zeros(()), xs)

    loop = loop_in(run, jnp.ones((STEPS, EDGES)))
    inputs = inputs_of(loop)
    assert_same(by_kernel(plan_of(loop), inputs), by_xla(loop, inputs))


def test_numbers_that_are_copied_are_read_one_by_one() -> None:
    """Gathers took 2.5 times as long on some processors, which XLA does not use."""

    def text(step: Any) -> str:
        places = jnp.asarray(np.random.default_rng(0).permutation(100))
        loop = loop_in(
            lambda c: onescan.scan(lambda c, _: (step(c, places), c[0]), c, length=9),
            jnp.ones(100),
        )
        features = host().features | {AVX512}
        plan = choose(loop, Machine(64, 1, features))
        inputs = inputs_of(loop)
        if features == host().features:
            assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=4)
        return str(build(plan)[0])

    assert "masked.gather" not in text(lambda c, p: c[p])
    assert "masked.gather" in text(lambda c, p: jnp.tanh(c[p]) * 0.5)
