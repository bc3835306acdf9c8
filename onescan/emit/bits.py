"""Operations on floats as bit patterns: nextafter and reduce_precision, as XLA does
them.  Integers, so that numbers too small to be normal are seen everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.math.halves import BFLOAT16, FLOAT16
from onescan.emit.math.types import DOUBLE, SINGLE, Format, Lane, select
from onescan.loop import Equation

FORMATS: dict[Any, Format] = {
    ty.FLOAT16: FLOAT16,
    ty.BFLOAT16: BFLOAT16,
    np.dtype(np.float32): SINGLE,
    np.dtype(np.float64): DOUBLE,
}


def _bits(b: ty.Builder, value: ty.Value, dtype: np.dtype) -> Lane:
    """A register value as the bits it has in memory."""
    raw = ty.to_memory(b, value, dtype)
    whole = ty.with_width(ir.IntType(8 * dtype.itemsize), ty.width_of(raw))
    return Lane(b, b.bitcast(raw, whole))


def _float(bits: Lane, dtype: np.dtype) -> ty.Value:
    """Bits as they are in memory as a register value."""
    kind = ty.with_width(ty.memory_type(dtype), ty.width_of(bits.ir))
    return ty.from_memory(bits.b, bits.b.bitcast(bits.ir, kind), dtype)


def _size_of(bits: Lane, form: Format) -> Lane:
    """Without the sign."""
    return bits & ((1 << (form.bits - 1)) - 1)


def _infinity(form: Format) -> int:
    return (2 * form.bias + 1) << form.mantissa


def nextafter(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    """The number of its type next to x, on the side of y."""
    dtype = np.dtype(eqn.invars[0].aval.dtype)
    form = FORMATS[dtype]
    x, y = (_bits(b, value, dtype) for value in xs)
    x_size, y_size = _size_of(x, form), _size_of(y, form)
    shrink = ((x ^ y) < 0) | (x_size > y_size)
    step = select(shrink, x.like(-1), 1)
    moved = select(x_size.equals(0), (y & -(1 << (form.bits - 1))) | 1, x + step)
    equal = x.equals(y) | (x_size | y_size).equals(0)
    result = select(equal, y, moved)
    infinity = _infinity(form)
    nan = (x_size > infinity) | (y_size > infinity)
    return _float(select(nan, infinity | (1 << (form.mantissa - 1)), result), dtype)


def reduce_precision(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    """The nearest number with fewer bits; what would be subnormal there is zero."""
    dtype = np.dtype(eqn.invars[0].aval.dtype)
    form = FORMATS[dtype]
    exponent, mantissa = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    x = _bits(b, xs[0], dtype)
    result = x
    if mantissa < form.mantissa:
        dropped = form.mantissa - mantissa
        odd = (x >> dropped) & 1
        result = (x + odd + ((1 << dropped) // 2 - 1)) & -(1 << dropped)
    bias = (1 << (exponent - 1)) - 1
    if bias < form.bias:
        sign = result & -(1 << (form.bits - 1))
        power = _size_of(result, form) >> form.mantissa
        result = select(power > form.bias + bias, sign | _infinity(form), result)
        result = select(power <= form.bias - bias, sign, result)
    nan = _size_of(x, form) > _infinity(form)
    quiet = x | (1 << (form.mantissa - 1))
    return _float(select(nan, quiet, result), dtype)
