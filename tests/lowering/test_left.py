"""What XLA is given of a loop that it keeps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import onescan


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
