"""Conversions between dtypes, and the small tools that operations share."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.math import halves
from onescan.emit.math.features import is_x86


def like(value: ty.Value, number: float) -> ty.Value:
    """A number as a constant of a value's own type and width."""
    return ty.constant(ty.element_type(value), number, ty.width_of(value))


def intrinsic(b: ty.Builder, name: str, *args: ty.Value) -> ty.Value:
    """Call an LLVM intrinsic that is overloaded on its first argument's type."""
    kinds = [a.type for a in args]
    return b.call(declared(b.module, name, kinds, kinds[0]), args)


def declared(module: ir.Module, name: str, of: list[ir.Type], gives: ir.Type) -> Any:
    """An LLVM intrinsic that is overloaded on its first argument's type."""
    full = f"{name}.{suffix(of[0])}"
    kind = ir.FunctionType(gives, of)
    return module.globals.get(full) or ir.Function(module, kind, full)


def leading_zeros(b: ty.Builder, x: ty.Value) -> ty.Value:
    """Bits before the first that is set; all of them of 0."""
    function = declared(b.module, "llvm.ctlz", [x.type, ty.I1], x.type)
    return b.call(function, [x, ir.Constant(ty.I1, 0)])


def any_lane(b: ty.Builder, x: ty.Value) -> ty.Value:
    """Whether a bool is true in any lane."""
    if not ty.width_of(x):
        return x
    function = declared(b.module, "llvm.vector.reduce.or", [x.type], ty.I1)
    return b.call(function, [x])


def suffix(kind: ty.Kind) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return "f64" if kind == ty.F64 else "f32"


def rounded(b: ty.Builder, value: ty.Value, dtype: Any) -> ty.Value:
    """A float32 result as the half type it stands for."""
    if np.dtype(dtype) in ty.HALVES and ty.element_type(value) == ty.F32:
        return ty.from_memory(b, ty.to_memory(b, value, dtype), dtype)
    return value


def convert(b: ty.Builder, x: ty.Value, old: np.dtype, new: np.dtype) -> ty.Value:
    """A register value of one dtype as another, as XLA converts."""
    old, new = np.dtype(old), np.dtype(new)
    if old == new:
        return x
    width = ty.width_of(x)
    kind = ty.with_width(ty.register_type(new), width)
    if ty.is_bool(new):
        zero = like(x, 0)
        if ty.is_float(old):
            return b.fcmp_unordered("!=", x, zero)
        return b.icmp_unsigned("!=", x, zero)
    if ty.is_float(old) and ty.is_float(new):
        return _convert_float(b, x, old, new, kind)
    if ty.is_float(new):
        to_float = b.sitofp if ty.is_signed(old) else b.uitofp
        if new in ty.HALVES and old.itemsize > 2:  # one rounding only
            wide = to_float(x, ty.with_width(ty.F64, width))
            return _convert_float(b, wide, np.dtype(np.float64), new, kind)
        return rounded(b, to_float(x, kind), new)
    if ty.is_float(old):
        return _float_to_int(b, x, new, kind)
    if new.itemsize < old.itemsize and not ty.is_bool(old):
        return b.trunc(x, kind)
    if new.itemsize == old.itemsize and not ty.is_bool(old):
        return x
    return b.sext(x, kind) if ty.is_signed(old) else b.zext(x, kind)


def _convert_float(
    b: ty.Builder, x: ty.Value, old: np.dtype, new: np.dtype, kind: ty.Kind
) -> ty.Value:
    if new == np.float64:
        return b.fpext(x, kind)
    if new == np.float32:
        return b.fptrunc(x, kind) if old == np.float64 else x
    if old == np.float64:
        if new == ty.FLOAT16:
            bits = halves.float64_to_float16(b, x)
        else:
            bits = halves.float64_to_bfloat16(b, x)
        return ty.from_memory(b, bits, new)
    return rounded(b, x, new)


def _float_to_int(b: ty.Builder, x: ty.Value, new: np.dtype, kind: ty.Kind) -> ty.Value:
    """Towards zero, held at the ends of the range; NaN is 0."""
    if isinstance(kind, ir.VectorType) and is_x86(b):
        return _vector_to_int(b, x, new, kind)
    name = "llvm.fptosi.sat" if ty.is_signed(new) else "llvm.fptoui.sat"
    full = f"{name}.{suffix(kind)}.{suffix(x.type)}"
    function = b.module.globals.get(full) or ir.Function(
        b.module, ir.FunctionType(kind, [x.type]), full
    )
    return b.call(function, [x])


def _vector_to_int(
    b: ty.Builder, x: ty.Value, new: np.dtype, kind: ty.Kind
) -> ty.Value:
    """The same in vectors, where LLVM would take x86's numbers one by one.

    What is converted in vain, above the range, is never chosen.
    """
    signed, ends = ty.is_signed(new), np.iinfo(new)
    # the lower end is a float, the upper one perhaps not, but what comes after it is
    above = b.fcmp_ordered(">=", x, like(x, float(ends.max + 1)))
    lowest = like(x, float(ends.min))
    x_or_lowest = b.select(b.fcmp_ordered(">", x, lowest), x, lowest)
    if new.itemsize < 4:
        few = b.select(above, like(x, float(ends.max)), x_or_lowest)
        wide = ty.with_width(ir.IntType(32), ty.width_of(x))
        result = b.trunc(b.fptosi(few, wide), kind)
    else:
        result = (b.fptosi if signed else b.fptoui)(x_or_lowest, kind)
        result = b.select(above, like(result, ends.max), result)
    if signed:  # else it is the lowest
        result = b.select(b.fcmp_unordered("uno", x, x), like(result, 0), result)
    return result
