"""The remainder that kernels have, with and without a C library, against C's own."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from engines import edge_values
from llvmlite import ir

from onescan.emit.math.features import GPU, allow
from onescan.emit.math.remainder import remainder
from onescan.runtime import compiler

KINDS: dict[Any, Any] = {np.float32: ir.FloatType(), np.float64: ir.DoubleType()}


def over_arrays(dtype: Any, features: list[str]) -> Any:
    """`loop(n, x, y, out)` as a function of two arrays."""
    kind, count, pointer = KINDS[dtype], ir.IntType(64), ir.PointerType()
    module = ir.Module()
    allow(module, features)
    signature = ir.FunctionType(ir.VoidType(), [count, pointer, pointer, pointer])
    function = ir.Function(module, signature, "loop")
    entry, head, done = (function.append_basic_block() for _ in range(3))
    b: Any = ir.IRBuilder(entry)
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(count)
    places = [b.gep(p, [i], source_etype=kind) for p in function.args[1:]]
    x, y = (b.load(place, typ=kind) for place in places[:2])
    b.store(remainder(b, x, y), places[2])
    following = b.add(i, ir.Constant(count, 1))
    i.add_incoming(ir.Constant(count, 0), entry)
    i.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, function.args[0]), head, done)
    b.position_at_end(done)
    b.ret_void()
    address = compiler.link(str(module), ["loop"]).kept()["loop"]
    kinds = [ctypes.c_int64, *[ctypes.c_void_p] * 3]
    call = ctypes.CFUNCTYPE(None, *kinds)(address)

    def run(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        out = np.empty_like(x)
        call(len(x), x.ctypes.data, y.ctypes.data, out.ctypes.data)
        return out

    return run


@pytest.mark.parametrize("features", [[GPU], []], ids=["GPU", "CPU"])
@pytest.mark.parametrize("dtype", KINDS)
def test_remainder_is_exact(dtype: Any, features: list[str]) -> None:
    rng = np.random.default_rng(0)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    size = 200_000
    anything = rng.integers(0, np.iinfo(bits).max, (2, size), bits).view(dtype)
    # close in size, and multiples that are nearly or exactly whole
    y = rng.standard_normal(size).astype(dtype)
    near = np.stack([(y * rng.integers(0, 5000, size)).astype(dtype), y])
    steps = np.nextafter(near[0], dtype(rng.choice([-np.inf, np.inf])))
    edges = np.stack(np.meshgrid(*[edge_values(np.dtype(dtype).name)] * 2)).reshape(
        2, -1
    )
    xs = np.concatenate([anything[0], near[0], steps, edges[0]])
    ys = np.concatenate([anything[1], near[1], near[1], edges[1]])
    with np.errstate(all="ignore"):
        expected = np.fmod(xs, ys)
    found = over_arrays(dtype, features)(xs, ys)
    np.testing.assert_array_equal(found, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])
