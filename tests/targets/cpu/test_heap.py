"""Bodies that hold more values than a stack should."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernels import by_kernel, by_xla, inputs_of, kernel_of, loop_in, plan_of
from processes import output

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


def widening(init: jax.Array) -> Any:
    """A small carry, and tables of every two of its numbers in between."""

    def step(c: jax.Array, _: None) -> tuple[jax.Array, None]:
        table = jnp.cumsum(jnp.sin(c[:, None] * c), 0)
        return table @ c * 1e-3 + jnp.cumsum(jnp.cos(table), 1).sum(1) * 1e-6, None

    return jax.lax.scan(step, init, length=3)[0]


WITHOUT_MEMORY = """
import ctypes, resource
ctypes.CDLL(None).mallopt(-8, 1)  # one arena: others have room that is counted already
import jax, jax.numpy as jnp, onescan
from pathlib import Path
from test_heap import widening

onescan.install()
init = jax.block_until_ready(jnp.ones(2700))
with onescan.engine("native"):
    run = jax.jit(widening).lower(init).compile()
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (1 << 20), -1))
try:
    message = jax.block_until_ready(run(init))
except Exception as error:
    message = str(error)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(message, bool(jnp.isfinite(run(init)).all()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as on Linux")
def test_an_error_where_there_is_no_memory():
    said = output(WITHOUT_MEMORY, beside=__file__)
    assert said.startswith("RESOURCE_EXHAUSTED: ")
    assert said.endswith("there is no memory for the values of a loop's step True")
