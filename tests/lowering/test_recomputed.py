"""Loops that a gradient computes again, and that decide by rounding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan
from onescan import switches
from onescan.lowering.recomputed import REASON


def solved(adaptive: bool) -> Any:
    """The mean of where some animals are, by an adaptive solver or by equal steps."""
    dfx = pytest.importorskip("diffrax")

    def field(t: Any, y: Any, rates: Any) -> Any:
        prey, hunters = y
        a, b, c, d = rates
        return jnp.stack([a * prey - b * prey * hunters, c * prey * hunters - d])

    kind = dfx.PIDController(1e-5, 1e-5) if adaptive else dfx.ConstantStepSize()

    def mean(rates: Any, start: Any) -> Any:
        found = dfx.diffeqsolve(
            dfx.ODETerm(field),
            dfx.Tsit5(),
            0.0,
            1.0,
            0.1,
            start,
            args=rates,
            stepsize_controller=kind,
            max_steps=64,
        )
        return jnp.mean(found.ys)

    return lambda rates, start: jnp.mean(jax.vmap(mean, (None, 0))(rates, start))


RATES = np.array([1.1, 0.4, 0.1, 0.4])
STARTS = np.linspace(5, 6, 8).reshape(4, 2)


def engines_of(f: Any, dtype: str) -> tuple[set[str], Any]:
    """The engines of the loops of a function, and what it gives."""
    onescan.clear_report()
    with jax.enable_x64(dtype == "float64"), switches.using(installed=True):
        args = RATES.astype(dtype), STARTS.astype(dtype)
        found = jax.jit(lambda *args: f(*args))(*args)
    return {row.engine for row in onescan.report().rows}, found


def test_the_gradient_of_an_adaptive_solver_is_xla_s_in_float32() -> None:
    f = jax.grad(solved(adaptive=True))
    engines, found = engines_of(f, "float32")
    assert engines == {"xla"}  # also the loops inside
    assert {row.reason for row in onescan.report().rows} == {REASON}
    with onescan.engine("xla"):
        np.testing.assert_array_equal(
            found, jax.jit(f)(*map(jnp.float32, (RATES, STARTS)))
        )


def test_others_are_kernels() -> None:
    assert engines_of(solved(adaptive=True), "float32")[0] == {"native"}
    assert engines_of(jax.grad(solved(adaptive=False)), "float32")[0] == {"native"}
    assert engines_of(jax.grad(solved(adaptive=True)), "float64")[0] == {"native"}
