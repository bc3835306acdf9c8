"""The terms of a product: operands converted once, and how two numbers join a sum."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Array
from onescan.emit.emitter import Emitter
from onescan.emit.folds import Combine
from onescan.emit.math.features import FP16, has
from onescan.emit.reduce import KINDS

#: blocks of results for each of which an operand's numbers are converted
OFTEN = 2


def read_often(e: Emitter, array: Array, times: int) -> Array:
    """An operand of which each number is read so often, converted once.

    One that the L2 cache would not hold is better converted as it passes.
    """
    large = 4 * prod(array.shape) > e.plan.l2
    along_lanes = e.plan.inner_width < 2 or e.plan.vector is not None
    if times < OFTEN or large or along_lanes:
        return e.once(array)
    if array.dtype in ty.HALVES and not has(e.b, FP16):
        memory = e.scratch(array.shape, array.lanes, np.float32)
        copy = e.stored(memory, array.shape, array.lanes)
        e.put(copy, array)
        return replace(copy, dtype=array.dtype)
    is_view = array.apart is not None and not array.cost
    return array if is_view else e.materialise(array)


def addition(dtype: Any) -> Combine:
    """What adds up sums of products; of truth values, whether any is true."""
    return KINDS["reduce_or" if ty.is_bool(dtype) else "reduce_sum"][0]


def multiply_add(
    b: ty.Builder, dtype: Any, x: ty.Value, y: ty.Value, z: ty.Value
) -> ty.Value:
    x, y, z = ty.match(b, x, y, z)
    if ty.is_float(dtype):
        return b.fadd(b.fmul(x, y, flags=el.CONTRACT), z, flags=el.CONTRACT)
    if ty.is_bool(dtype):
        return b.or_(b.and_(x, y), z)
    return b.add(b.mul(x, y), z)
