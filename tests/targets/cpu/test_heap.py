"""Bodies that hold more values than a stack should."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernels import by_kernel, by_xla, inputs_of, kernel_of, loop_in, plan_of

from onescan.loop import LeaveToXla
from onescan.targets.cpu import build
from onescan.targets.cpu.emitter import ON_STACK


def mixing(init: jax.Array) -> Any:
    """Rows and columns meet in every step: no axis is independent."""

    def step(c: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        rows = jnp.cumsum(jnp.sin(c) / 300, axis=1)
        columns = jnp.cumsum(jnp.cos(c) / 200, axis=0)
        return jnp.tanh(rows + columns - rows.mean()), columns[0]

    return jax.lax.scan(step, init, length=3)


def test_the_rest_lies_on_the_heap():
    loop = loop_in(mixing, jnp.zeros((200, 300)))
    kernel = kernel_of(plan_of(loop))
    text = str(kernel.module)
    assert kernel.profile is not None
    assert kernel.profile.held > ON_STACK
    allocations = text.count('call ptr @"aligned_alloc"')
    assert allocations == text.count('call void @"free"') > 0
    inputs = inputs_of(loop)
    got = by_kernel(plan_of(loop), inputs)
    for mine, theirs in zip(got, by_xla(loop, inputs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_lanes_in_threads_have_their_own():
    batched = jax.vmap(mixing)
    loop = loop_in(batched, jnp.zeros((3, 100, 300)))
    inputs = inputs_of(loop)
    got = by_kernel(plan_of(loop), inputs)
    for mine, theirs in zip(got, by_xla(loop, inputs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_not_without_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "LARGEST", ON_STACK)
    loop = loop_in(mixing, jnp.zeros((200, 300)))
    with pytest.raises(LeaveToXla, match=r"one step holds .* MiB of values, more than"):
        kernel_of(plan_of(loop))
