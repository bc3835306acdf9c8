"""Rows that are sorted by vectors in kernels whose vectors lie along something else."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from compare import assert_same
from jax import lax
from kernels import by_kernel, by_xla, inputs_of, loop_in, plan_of

from onescan.targets.cpu import current

LANES, ROWS, N, STEPS = 512, 8, 64, 4


@pytest.mark.parametrize(
    "f",
    [jnp.sort, jnp.argsort, lambda x: lax.top_k(x, 20)[1]],
    ids=["sort", "argsort", "top_k"],
)
def test_by_vectors(f: Any) -> None:
    def step(c: Any, x: Any) -> Any:
        lanes, rows = c
        found = f(rows)
        return (jnp.tanh(lanes) * x + lanes, rows[::-1] * x), found

    carry = jnp.ones(LANES), jnp.ones((ROWS, N))
    loop = loop_in(lambda c, x: lax.scan(step, c, x), carry, jnp.ones(STEPS))
    plan, inputs = plan_of(loop), inputs_of(loop)
    assert plan.vector is not None
    assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=64)
    profile = current().build(plan).profile
    assert profile is not None
    one_by_one = sum(profile.runs.get((op, "i1"), 0) for op in ("icmp", "fcmp"))
    assert one_by_one < 4 * STEPS * ROWS * N
