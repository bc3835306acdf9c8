"""Memory of gradients: bounded as asked, by loops that are kernels inside."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan

CARRY = jnp.ones(1024)  # 4 KB


def drift(carry, _):
    return 0.999 * carry + 0.001 * jnp.sin(carry), None


def gradient(steps, checkpoint):
    run = lambda carry: onescan.scan(drift, carry, None, steps, checkpoint=checkpoint)
    return jax.jit(jax.grad(lambda carry: run(carry)[0].sum()))


def extra_bytes(steps, checkpoint):
    compiled = gradient(steps, checkpoint).lower(CARRY).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(
    ("checkpoint", "most"), [("sqrt", 20e6), ("log", 2e6), ("50MB", 50e6)]
)
def test_a_million_steps_in_under_100_megabytes(checkpoint, most):
    assert extra_bytes(1_000_000, checkpoint) < most


def test_without_it_every_carry_is_kept():
    assert extra_bytes(2000, None) > 2000 * 4096
    assert extra_bytes(2000, 20) < 200 * 4096


@pytest.mark.parametrize("checkpoint", [7, "sqrt", "log", "900kB"])
def test_the_gradient_is_the_plain_one(checkpoint):
    expected = gradient(600, None)(CARRY)
    np.testing.assert_allclose(gradient(600, checkpoint)(CARRY), expected, rtol=1e-5)


def test_the_loops_inside_are_kernels():
    onescan.clear_report()
    with onescan.engine("native"):  # which raises where one is left to XLA
        gradient(400, "sqrt")(CARRY)
    rows = onescan.report().rows
    assert {row.engine for row in rows} == {"native"}
    assert {row.length for row in rows} == {20}
    assert {row.name for row in rows} == {"drift"}


def test_forward_mode_and_second_derivatives():
    def run(rate, checkpoint=None):
        step = lambda c, x: (c * rate + jnp.sin(x), None)
        return onescan.scan(step, 1.0, jnp.arange(9.0), checkpoint=checkpoint)[0]

    for derivative in (jax.jacfwd(run), jax.hessian(run)):
        again = jax.jit(derivative, static_argnums=1)(0.9, "sqrt")
        np.testing.assert_allclose(again, derivative(0.9), rtol=1e-4)
