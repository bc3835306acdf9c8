"""Vectors that are stored in parts, the last of them first, and read as one."""

from __future__ import annotations

import ctypes
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import onescan
from onescan.runtime import compiler

#: of which LLVM 22 makes code that uses a sum before it is computed, and then aborts
MODULE = """
define void @"kernel"(ptr %"in", ptr %"out") {
entry:
  %"memory" = alloca [8 x float], align 32
  %"x" = load <4 x float>, ptr %"in", align 4
  %"high" = getelementptr inbounds float, ptr %"memory", i64 4
  %"sum" = fadd <4 x float> %"x", %"x"
  store <4 x float> %"sum", ptr %"high", align 16
  %"more" = fadd <4 x float> %"sum", %"x"
  store <4 x float> %"more", ptr %"memory", align 16
  %"whole" = load <8 x float>, ptr %"memory", align 32
  store <8 x float> %"whole", ptr %"out", align 4
  ret void
}
"""


def test_a_module_that_llvm_breaks() -> None:
    kernel = compiler.link(MODULE, ["kernel"]).kept()["kernel"]
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(kernel)
    x, out = np.arange(4, dtype=np.float32), np.zeros(8, np.float32)
    call(x.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, [*(3 * x), *(2 * x)])


@pytest.mark.parametrize("sum_up", [lax.cumsum, lax.cummax])
@pytest.mark.parametrize("shape", [(7, 4), (2, 4), (8, 8)])
def test_sums_backwards_read_as_one(sum_up: Any, shape: tuple[int, int]) -> None:
    def step(c: Any, _: Any) -> Any:
        return c * 0.5, sum_up(c, 0, reverse=True).reshape(-1)

    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    with onescan.engine("native"):
        ours = jax.jit(lambda x: onescan.scan(step, x, None, length=20))(x)
    theirs = jax.jit(lambda x: lax.scan(step, x, None, length=20))(x)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-6)
