"""Squares that are transposed in registers, numbers of every size."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from onescan.emit.builder import Builder
from onescan.emit.constants import vector
from onescan.emit.shuffles import exchanged, transposed_square
from onescan.runtime import compiler

KINDS: dict[str, Any] = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    "float16": ir.HalfType(),
    "int64": ir.IntType(64),
    "int32": ir.IntType(32),
    "int8": ir.IntType(8),
}


def of_square(dtype: str, side: int, make: Any) -> np.ndarray:
    """What a kernel makes of the rows of a square of different numbers."""
    module, pointer = ir.Module(), ir.PointerType()
    signature = ir.FunctionType(ir.VoidType(), [pointer, pointer])
    function = ir.Function(module, signature, "square")
    b, kind = Builder(function.append_basic_block()), KINDS[dtype]
    row, size = vector(kind, side), np.dtype(dtype).itemsize

    def at(pointer: Any, k: int) -> Any:
        return b.gep(
            pointer, [ir.Constant(ir.IntType(64), k * side)], source_etype=kind
        )

    numbers, result = function.args
    rows = [b.load(at(numbers, k), typ=row, align=size) for k in range(side)]
    for k, made in enumerate(make(b, rows)):
        b.store(made, at(result, k), align=size)
    b.ret_void()
    address = compiler.link(str(module), ["square"]).kept()["square"]
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(address)
    given = square(dtype, side)
    found = np.zeros_like(given)
    call(given.ctypes.data, found.ctypes.data)
    return found


def square(dtype: str, side: int) -> np.ndarray:
    return np.arange(side * side).astype(dtype).reshape(side, side)


@pytest.mark.parametrize("side", [1, 2, 8, 16])
@pytest.mark.parametrize("dtype", KINDS)
def test_transposed(dtype: str, side: int) -> None:
    found = of_square(dtype, side, transposed_square)
    np.testing.assert_array_equal(found, square(dtype, side).T)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
def test_exchanged(dtype: str) -> None:
    """The same exchange twice is one, and of no position anything may be given."""

    def make(b: Builder, rows: list[Any]) -> list[Any]:
        places = [7, 0, None, 3]
        first, second = (exchanged(b, rows[0], rows[1], places) for _ in range(2))
        assert first is second
        return [first, *rows[1:]]

    found = of_square(dtype, 4, make)
    given = square(dtype, 4)
    np.testing.assert_array_equal(found[0, [0, 1, 3]], given.flat[[7, 0, 3]])
    np.testing.assert_array_equal(found[1:], given[1:])
