"""The program being lowered: its values, and what made them.

A value is one of MLIR's, an operation one of StableHLO's; this file and `compat` are
the only ones that know.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo


def transposed(value: Any, order: Sequence[int]) -> Any:
    """A value, with its dimensions in another order."""
    return stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(list(order)))


def maker_of(value: Any) -> Any:
    """The operation that makes a value, if one does."""
    owner = value.owner if isinstance(value, ir.Value) else None
    return None if owner is None or isinstance(owner, ir.Block) else owner


def is_used(value: Any) -> bool:
    """Whether an operation reads a value, so far."""
    return next(iter(value.uses), None) is not None


def type_of(value: Any) -> Any:
    """The type of a value; None if it is no array of real numbers."""
    return None if is_complex(value) else array_type_of(value)


def array_type_of(value: Any) -> Any:
    """The type of a value; None if it is no array."""
    kind = value.type if isinstance(value, ir.Value) else None
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return None
    dtype = _dtypes().get(str(kind.element_type))
    return None if dtype is None else ShapedArray(tuple(kind.shape), dtype)


def is_complex(value: Any) -> bool:
    """Whether a value is an array of complex numbers."""
    kind = value.type if isinstance(value, ir.Value) else None
    if not isinstance(kind, ir.RankedTensorType):
        return False
    return isinstance(kind.element_type, ir.ComplexType)


def whole_of(re: Any, im: Any) -> Any:
    """The complex numbers that two values are parts of; None if there are none.

    Numbers that the program puts together of parts are better taken as those, unless
    these were parts of one array before: between two kernels they are.
    """
    first, second = maker_of(re), maker_of(im)
    if first is None or second is None:
        return None
    if (first.name, second.name) != ("stablehlo.real", "stablehlo.imag"):
        return None
    whole, other = first.operands[0], second.operands[0]
    if whole != other:
        return None
    maker = maker_of(whole)
    if maker is not None and maker.name == "stablehlo.complex":
        return whole_of(*maker.operands)
    return whole


def joined(re: Any, im: Any) -> Any:
    """Complex numbers with these parts."""
    return stablehlo.complex(re, im)


def parts_of(value: Any) -> tuple[Any, Any]:
    """The real and the imaginary parts of complex numbers."""
    return stablehlo.real(value), stablehlo.imag(value)


def product_like(op: Any, x: Any, y: Any) -> Any:
    """The product of two other matrices, in the way of a product of the program."""
    shape = op.results[0].type.shape
    kind = ir.RankedTensorType.get(shape, x.type.element_type)
    names = ("dot_dimension_numbers", "precision_config", "algorithm")
    how = {name: op.attributes[name] for name in names if name in op.attributes}
    made = ir.Operation.create(op.name, [kind], [x, y], how)
    return made.results[0]


def is_zero(value: Any) -> bool:
    """Whether a value is known to be full of zeros."""
    op = maker_of(value)
    if op is not None and op.name == "stablehlo.broadcast_in_dim":
        return is_zero(op.operands[0])
    return op is not None and op.name == "stablehlo.constant" and splat_of(op) == 0


#: what makes a number of numbers
FOLDED = {
    "stablehlo.add": np.add,
    "stablehlo.subtract": np.subtract,
    "stablehlo.multiply": np.multiply,
    "stablehlo.negate": np.negative,
}
#: how many of them follow each other
FOLDS = 4


def number_of(value: Any, folds: int = FOLDS) -> Any:
    """A float that a value is known to be: a constant, or what follows from some."""
    op, kind = maker_of(value), type_of(value)
    if op is None or kind is None or str(kind.dtype) not in ("float32", "float64"):
        return None
    if op.name == "stablehlo.constant":
        number = splat_of(op)
        return None if number is None else np.asarray(number, kind.dtype)[()]
    if op.name not in FOLDED or not folds:
        return None
    numbers = [number_of(operand, folds - 1) for operand in op.operands]
    if any(number is None for number in numbers):
        return None
    with np.errstate(all="ignore"):
        return FOLDED[op.name](*numbers)


@cache
def _dtypes() -> dict[str, np.dtype]:
    """Types of numbers, by the names that programs have for them."""
    names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 bfloat16 float16"
    names += " float32 float64 complex64 complex128"
    types = map(jax.numpy.dtype, names.split())
    return {str(mlir.dtype_to_ir_type(dtype)): dtype for dtype in types}


def broadcast_dims(op: Any) -> list[int]:
    """Where the dimensions of a broadcast's operand are in its result."""
    return list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))


def bounds_of(op: Any) -> tuple[list[int], list[int], list[int]]:
    """Where a slice begins and ends, and its strides."""
    names = ("start_indices", "limit_indices", "strides")
    starts, limits, strides = (
        list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in names
    )
    return starts, limits, strides


def order_of(op: Any) -> list[int]:
    """The dimensions of a transposition's operand, in the order of its result."""
    return list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))


def dimension_of(op: Any) -> int:
    """The dimension along which the program puts arrays one after the other."""
    return ir.IntegerAttr(op.attributes["dimension"]).value


def splat_of(op: Any) -> Any:
    """The one number that a constant is full of, if it is."""
    value = op.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr) or not value.is_splat:
        return None
    number: Any = value.get_splat_value()
    return number.value


def one_zero() -> tuple[Any, Any]:
    """A value that costs nothing, and its type."""
    value = mlir.ir_constant(np.zeros(1, np.float32))
    return value, ShapedArray((1,), np.float32)
