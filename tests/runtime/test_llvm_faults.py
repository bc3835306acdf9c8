"""What LLVM 22 gets wrong, and is kept from."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from kernels import kernel_of, loop_in, plan_of

import onescan
from onescan.runtime import compiler
from onescan.targets.cpu.kernel import optimised_ir

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


#: what LLVM makes of a sum with the first of some integers
WHOLE = """
  %bc = bitcast <8 x i32> %small to <4 x i64>
  %2 = extractelement <4 x i64> %bc, i64 0
  %3 = and i64 %2, 15
"""
PART = """
  %bc = bitcast <8 x i32> %small to <4 x i64>
  %"part of 2" = extractelement <8 x i32> %small, i64 0
  %2 = zext i32 %"part of 2" to i64
  %3 = and i64 %2, 15
"""


def test_the_first_of_some_integers_is_taken_by_itself() -> None:
    assert compiler.with_parts(WHOLE) == PART
    for kept in ("  %4 = add i64 %2, 1\n", "  %4 = and i64 %2, 4294967296\n"):
        assert compiler.with_parts(WHOLE + kept) == WHOLE + kept


def test_in_each_function() -> None:
    """Whose names others may have, too."""
    function = """
define i64 @"f{}"(ptr %p) {{
  %v = load <8 x i32>, ptr %p, align 4
  %small = call <8 x i32> @llvm.umin.v8i32(<8 x i32> %v, <8 x i32> splat (i32 9))
  %bc = bitcast <8 x i32> %small to <4 x i64>
  %first = extractelement <4 x i64> %bc, i64 0
  %masked = and i64 %first, 15
  %place = mul nuw nsw i64 %masked, 132
  ret i64 %place
}}
"""
    text = "".join(map(function.format, range(2)))
    text += "declare <8 x i32> @llvm.umin.v8i32(<8 x i32>, <8 x i32>)"
    with compiler.optimised(text) as module:
        assert str(module).count("extractelement <8 x i32>") == 2


@pytest.mark.parametrize("rows", [4, 10, 100])
@pytest.mark.parametrize("wide", [False, True])
def test_rows_at_many_places(rows: int, wide: bool) -> None:
    """Their places are computed eight at once, and read one by one for rows of 33."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, rows, 9).astype(np.int64 if wide else np.int32)
    c = rng.normal(size=(rows, 33)).astype(np.float32)
    xs = rng.normal(size=(5, 9, 33)).astype(np.float32)

    def step(c: Any, x: Any) -> Any:
        return c.at[places].add(0.1 * x) * 0.9, c[places].sum()

    with jax.enable_x64(wide):
        with onescan.engine("native"):
            ours = jax.jit(lambda c, xs: onescan.scan(step, c, xs))(c, xs)
        theirs = jax.jit(lambda c, xs: lax.scan(step, c, xs))(c, xs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_copies_are_not_cut_to_pieces() -> None:
    """An array that is moved and copied came apart into hundreds of vectors."""

    def step(c: Any, x: Any) -> Any:
        return jnp.roll(c, 1), x

    loop = loop_in(partial(lax.scan, step), jnp.arange(1000.0), jnp.arange(30.0))
    assert len(optimised_ir(kernel_of(plan_of(loop))).splitlines()) < 300
