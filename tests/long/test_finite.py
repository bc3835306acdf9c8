"""`check="finite"` and `first_nonfinite`: the step, the leaf and the line to blame."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan


def cool(carry, x):
    heat = carry["heat"] - x
    mask = jnp.where(heat > 1e9, -jnp.inf, 0.0)  # an infinity that is meant
    root = jnp.sqrt(heat) + jnp.exp(mask)
    return {"heat": heat, "steps": carry["steps"] + 1}, (heat, root)


XS = jnp.full(50, 0.1)
LINE = inspect.getsourcelines(cool)[1] + 3
BLAME = (
    r"y\[1\] is not finite after step {step}{lane} of cool "
    r"\(.*test_finite\.py:\d+\)\. The operation that made the first NaN or "
    r"infinity from finite numbers is sqrt, "
    rf"in jnp\.sqrt\(heat\), test_finite\.py:{LINE}"
)


def run(heat, **options):
    init = {"heat": heat, "steps": 0}
    return onescan.scan(cool, init, XS, check="finite", **options)


def test_a_program_raises_with_step_leaf_and_line():
    text = "NonFiniteError: onescan.scan: " + BLAME.format(step=10, lane="")
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        jax.block_until_ready(jax.jit(run)(1.05))


@pytest.mark.parametrize(
    ("options", "step", "index"),
    [
        ({}, 10, 10),
        ({"reverse": True, "checkpoint": "sqrt"}, 10, 39),
        ({"where": np.arange(50) % 2 == 0}, 20, 20),
        ({"until": lambda carry: carry["heat"] < -1}, 10, 10),
    ],
    ids=["alone", "reverse and checkpoint", "where", "until"],
)
def test_outside_of_jit_the_error_is_our_own(options, step, index):
    with pytest.raises(
        onescan.NonFiniteError, match=BLAME.format(step=step, lane="")
    ) as e:
        run(1.05, **options)
    record = e.value.record
    assert (record.step, record.index, record.leaf) == (step, index, "y[1]")


def test_of_a_batch_the_first_lane_is_named():
    text = BLAME.format(step=10, lane=r" in lane \[1\] of the batch")
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        jax.block_until_ready(jax.jit(jax.vmap(run))(jnp.array([2.05, 1.05, 99.0])))


def test_of_a_gradient_the_forward_pass_is_checked():
    total = lambda heat, **options: run(heat, **options)[1][1].sum()
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=BLAME.format(step=10, lane="")
    ):
        jax.block_until_ready(jax.jit(jax.grad(total))(1.05))
    plain = lambda heat: onescan.scan(cool, {"heat": heat, "steps": 0}, XS)[1][1].sum()
    np.testing.assert_allclose(jax.grad(total)(99.0), jax.grad(plain)(99.0), rtol=1e-5)


def test_what_is_finite_is_left_alone():
    (carry, (heat, _)) = jax.jit(run)(99.0)
    np.testing.assert_allclose(heat[-1], carry["heat"])
    assert onescan.first_nonfinite(cool, {"heat": 99.0, "steps": 0}, XS) is None
    assert onescan.first_nonfinite(cool, {"heat": 99.0, "steps": 0}, XS[:0]) is None


def test_inputs_are_blamed_by_their_names():
    step = lambda carry, x: (carry * x["rate"], None)
    rates = {"rate": jnp.array([1.0, jnp.nan, 1.0])}
    found = onescan.first_nonfinite(step, 1.0, rates)
    assert (found.step, found.leaf, found.operation) == (1, "carry", None)
    assert "x['rate'] was not finite when the step began" in str(found)
    found = onescan.first_nonfinite(step, jnp.inf, {"rate": jnp.ones(3)})
    assert "carry was not finite when the step began" in str(found)
    scale = jnp.array(jnp.nan)
    found = onescan.first_nonfinite(lambda c, x: (c * scale, None), 1.0, length=2)
    assert "a value that the function closes over was not finite" in str(found)


def test_operations_inside_calls_have_their_own_lines():
    @jax.jit
    def helper(x):
        return jnp.log(x)

    found = onescan.first_nonfinite(lambda c, _: (helper(c), None), 2.0, length=9)
    assert found.operation == "log"
    assert "jnp.log(x), test_finite.py" in found.source
