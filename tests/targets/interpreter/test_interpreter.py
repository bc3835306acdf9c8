"""The interpreter of plans: right where plans are, and wrong where they are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, DIFFERENTIABLE
from compare import assert_same
from jax import lax
from kernels import by_xla, inputs_of, loop_in
from sampling import sample
from transforms import TRANSFORMS, by_jax

import onescan
from onescan.plan.plan import Lane
from onescan.targets import everywhere, platforms
from onescan.targets.base import Target
from onescan.targets.cpu.machine import Machine
from onescan.targets.interpreter import current
from onescan.targets.interpreter.run import run
from onescan.targets.interpreter.target import Interpreter

COMBINATIONS = [
    (name, transform)
    for name in CASES
    for transform in ("plain", "vmap", "grad")
    if name in DIFFERENTIABLE or transform != "grad"
]


@pytest.mark.parametrize(("name", "transform"), sample(COMBINATIONS, one_of=6))
def test_plans_run_tile_by_tile(name: str, transform: str) -> None:
    case = CASES[name]
    with onescan.engine("interpreter"):
        result = TRANSFORMS[transform](onescan.scan, case)
    assert_same(result, by_jax(transform, case), rounding=max(4.0, 4 * case.rounding))


@pytest.mark.parametrize("machine", [Machine(16, 1), Machine(32, 2), Machine(64, 8)])
@pytest.mark.parametrize("lanes", [1, 7, 33])
def test_on_any_machine(machine: Machine, lanes: int) -> None:
    def step(c: Any, x: Any) -> Any:
        total = jnp.cumsum(c, 1)[:, ::-1] + x[:, None]
        return jnp.tanh(total), total.max(1)

    loop = loop_in(
        lambda c, xs: lax.scan(step, c, xs), jnp.ones((lanes, 3)), jnp.ones((5, lanes))
    )
    inputs = inputs_of(loop)
    found = run(Interpreter(machine).plan(loop), [x.copy() for x in inputs])
    for ours, xla in zip(found, by_xla(loop, inputs), strict=True):
        np.testing.assert_allclose(ours, xla, rtol=1e-5, atol=1e-6)


def test_a_wrong_plan_gives_wrong_numbers() -> None:
    """An axis that the body sums over, taken for a lane."""
    step = lambda c, x: (c * 0.5 + c.sum() + x, None)
    loop = loop_in(lambda c, xs: lax.scan(step, c, xs), jnp.ones(8), jnp.ones((4, 8)))
    inputs = inputs_of(loop)
    right = current().plan(loop)
    np.testing.assert_allclose(
        run(right, [x.copy() for x in inputs])[0], by_xla(loop, inputs)[0], rtol=1e-5
    )
    lane = Lane(8, 4, False)
    jaxpr = loop.body.jaxpr
    values = [*jaxpr.invars, *(v for eqn in jaxpr.eqns for v in eqn.outvars)]
    along = {v: {0: lane} for v in values if v.aval.shape == (8,)}
    wrong = replace(right, lanes=(lane,), lane_of=along)
    found = run(wrong, [x.copy() for x in inputs])[0]
    assert not np.allclose(found, by_xla(loop, inputs)[0])


def test_what_it_does_not_know_is_left_to_xla() -> None:
    onescan.clear_report()
    with onescan.engine("interpreter"):
        jax.jit(
            lambda c: onescan.scan(
                lambda c, _: (c[::-1][c.argsort()], None), c, length=2
            )
        )(jnp.arange(3))
    (row,) = onescan.report().rows
    assert row.reason == "the interpreter has no rule for `gather`"


def test_targets_are_folders() -> None:
    assert set(platforms()) == {"cpu", "cuda", "interpreter"}
    assert everywhere() == ["interpreter"]
    assert all(
        isinstance(platforms()[name].current(), Target)
        for name in ("cpu", "interpreter")
    )


def test_an_engine_that_there_is_not() -> None:
    with (
        pytest.raises(onescan.ScanValueError, match="auto, xla, native, interpreter"),
        onescan.engine("abacus"),
    ):
        pass
