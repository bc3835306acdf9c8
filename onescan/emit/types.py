"""How JAX's dtypes stand in registers and in memory, and how scalars meet vectors.

In a register a bool is an i1 and float16/bfloat16 are computed as float32; in
memory a bool is a byte and the half types are their 16 bits.  A register value
is a scalar or an LLVM vector of any width; `match` gives several values one
width.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from llvmlite import ir

from onescan.emit.constants import nothing, positions, repeated, vector
from onescan.emit.math import halves
from onescan.emit.math.features import FP16, has

# llvmlite is not typed, and what a checker infers of it is wrong
Value = Any  # an ir.Value: a scalar or a vector in a register
Kind = Any  # an ir.Type
Builder = Any  # an ir.IRBuilder

I1 = ir.IntType(1)
I8 = ir.IntType(8)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
F64 = ir.DoubleType()
PTR = ir.PointerType()
FIRST = ir.Constant(I32, 0)

BFLOAT16 = np.dtype(jnp.bfloat16)
FLOAT16 = np.dtype(np.float16)
HALVES = (FLOAT16, BFLOAT16)
#: the types of values that a kernel can hold: numpy calls a float of one byte one too
HELD = frozenset(
    map(np.dtype, ("bool", *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64))))
) | {*HALVES, np.dtype("float32"), np.dtype("float64")}


@cache
def is_float(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.floating)


@cache
def is_signed(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.signedinteger)


def is_bool(dtype: Any) -> bool:
    return dtype == np.bool_


def supported(dtype: Any) -> bool:
    """Whether values of this dtype can be held by a kernel."""
    return not hasattr(dtype, "_impl") and np.dtype(dtype) in HELD


@cache
def register_type(dtype: Any) -> Kind:
    dtype = np.dtype(dtype)
    if is_bool(dtype):
        return I1
    if is_float(dtype):
        return F64 if dtype.itemsize == 8 else F32
    return ir.IntType(8 * dtype.itemsize)


@cache
def memory_type(dtype: Any) -> Kind:
    dtype = np.dtype(dtype)
    if is_bool(dtype):
        return I8
    if dtype in HALVES:
        return ir.IntType(16)
    return register_type(dtype)


def from_memory(b: Builder, value: Value, dtype: Any) -> Value:
    """What was loaded, as a register value."""
    dtype = np.dtype(dtype)
    if is_bool(dtype):
        return b.icmp_unsigned("!=", value, ir.Constant(value.type, None))
    if dtype not in HALVES:
        return value
    is_float16 = dtype == FLOAT16
    to_float32 = halves.float16_to_float32 if is_float16 else halves.bfloat16_to_float32
    wide: Any = to_float32(b, value)
    getattr(b, "halves", {})[wide.get_reference(), dtype] = value
    return wide


def to_memory(b: Builder, value: Value, dtype: Any) -> Value:
    """A register value, as it is stored."""
    dtype = np.dtype(dtype)
    if is_bool(dtype):
        return b.zext(value, with_width(I8, width_of(value)))
    if dtype in HALVES:  # what came from memory goes back as it was, NaNs included
        key = value.get_reference(), dtype
        for known in (getattr(b, "halves", {}), getattr(b, "bits_here", {})):
            if key in known:
                return known[key]
        if dtype == FLOAT16:
            return halves.float32_to_float16(b, value)
        return halves.float32_to_bfloat16(b, value)
    return value


def as_in_memory(b: Builder, value: Value, dtype: Any) -> Value:
    """The same value, which needs no rounding to be stored."""
    dtype, known = np.dtype(dtype), getattr(b, "bits_here", None)
    if dtype not in HALVES or element_type(value) != F32:
        return value
    if dtype == FLOAT16 or known is None:
        return from_memory(b, to_memory(b, value, dtype), dtype)
    key = value.get_reference(), dtype
    if key not in b.halves and key not in known:
        known[key] = halves.upper_half(b, value)
    return value


def width_of(value: Value) -> int:
    """How many lanes a register value has; 0 for a scalar."""
    return value.type.count if isinstance(value.type, ir.VectorType) else 0


def with_width(element: Kind, width: int) -> Kind:
    return vector(element, width) if width else element


def element_type(value: Value) -> Kind:
    return value.type.element if isinstance(value.type, ir.VectorType) else value.type


def constant(element: Kind, value: Any, width: int = 0) -> Value:
    """A Python number as a constant, the same in every lane."""
    if isinstance(element, ir.IntType):
        value = int(value) & ((1 << element.width) - 1)
    return repeated(with_width(element, width), ir.Constant(element, value))


def literal(value: Any, dtype: Any) -> Value:
    """A NumPy scalar as a register constant."""
    dtype = np.dtype(dtype)
    if is_float(dtype):
        return constant(register_type(dtype), float(value))
    return constant(register_type(dtype), int(value))


def splat(b: Builder, value: Value, width: int) -> Value:
    """A scalar in every lane."""
    if not width or isinstance(value.type, ir.VectorType):
        return value
    kind = with_width(value.type, width)
    if isinstance(value, ir.Constant):
        return repeated(kind, value)
    if (half := _half_of(b, value)) is not None:
        return from_memory(b, splat(b, half, width), FLOAT16)
    first = b.insert_element(nothing(kind), value, FIRST)
    found = b.shuffle_vector(first, nothing(kind), positions(*[0] * width))
    if (known := getattr(b, "spread", None)) is not None:
        known[found.get_reference()] = value
    return found


def in_all_lanes(b: Builder, vector: Value) -> Value | None:
    """The number that all lanes of a vector have, if it is known to be one."""
    return getattr(b, "spread", {}).get(vector.get_reference())


def _half_of(b: Builder, value: Value) -> Value | None:
    """The float16 that a number is, for a processor that computes with vectors of them.

    LLVM sees that it may, where all operands are such vectors, widened.
    """
    known = getattr(b, "halves", {})
    key = value.get_reference(), FLOAT16
    return known.get(key) if known and has(b, FP16) else None


def match(b: Builder, *values: Value) -> list[Value]:
    """The same values, all of one width."""
    width = max(map(width_of, values), default=0)
    return [splat(b, value, width) for value in values]


@cache
def iota(element: Kind, width: int) -> Value:
    return ir.Constant(with_width(element, width), list(range(width)))
