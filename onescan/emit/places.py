"""Positions that are known only at run time, held inside the array they point into.

Every address is computed from a clamped position, so no access leaves its array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jax import lax

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, spanning
from onescan.emit.comparisons import maximum, minimum
from onescan.emit.convert import convert
from onescan.emit.loops import Loops
from onescan.loop import Equation


@dataclass(frozen=True)
class Ready:
    """The positions of a gather, held inside before the first step."""

    places: Array
    inside: Array | None  # which were there already, where that is asked for


def lasts(eqn: Equation) -> list[int]:
    """For each number of a position the last one that is inside."""
    numbers, shape = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
    if eqn.primitive.name == "gather":
        sizes = eqn.params["slice_sizes"]
        return [shape[i] - sizes[i] for i in numbers.start_index_map]
    hidden = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = (i for i in range(len(shape)) if i not in hidden)
    extent = dict.fromkeys(range(len(shape)), 1)
    sizes = eqn.invars[2].aval.shape
    for i, j in zip(window, numbers.update_window_dims, strict=True):
        extent[i] = sizes[j]
    return [shape[i] - extent[i] for i in numbers.scatter_dims_to_operand_dims]


def asks(eqn: Equation) -> bool:
    """Whether it matters that a position was outside.

    Where a promise to stay inside is broken, XLA reads from inside, and drops updates.
    """
    mode = eqn.params["mode"]
    if eqn.primitive.name == "gather":
        return mode == lax.GatherScatterMode.FILL_OR_DROP
    return mode != lax.GatherScatterMode.CLIP


def position_of(e: Loops, array: Array, index: tuple[Index, ...]) -> ty.Value:
    """An element of an integer array as an i64 (or a vector of them)."""
    return convert(e.b, array.at(index), array.dtype, np.dtype(np.int64))


def read_position(e: Loops, array: Array, index: tuple[Index, ...]) -> ty.Value:
    """The same for reads, where an unsigned position past the i64s is a large one."""
    position = position_of(e, array, index)
    if array.dtype != np.uint64:
        return position
    width = ty.width_of(position)
    wrapped = e.b.icmp_signed("<", position, ty.constant(ty.I64, 0, width))
    return e.b.select(wrapped, ty.constant(ty.I64, (1 << 63) - 1, width), position)


def held(
    e: Loops, array: Array, index: tuple[Index, ...], last: int, asked: bool
) -> tuple[Index, ty.Value | None]:
    """An element held between 0 and `last`, and whether it was there, if `asked`.

    A vector of 32 bits is held as such: few processors compare longer ones as fast.
    """
    value = array.at(index)
    if not ty.width_of(value) or array.dtype.itemsize != 4 or not 0 < last < 1 << 31:
        position = read_position(e, array, index)
        inside = _inside(e, position, last) if asked else None
        return clamped(e, position, last), inside
    first, top = (ty.constant(ty.I32, n, ty.width_of(value)) for n in (0, last))
    between = minimum(e.b, array.dtype, maximum(e.b, array.dtype, value, first), top)
    position = convert(e.b, between, array.dtype, np.dtype(np.int64))
    inside = e.b.icmp_unsigned("<=", value, top) if asked else None
    return spanning(e.b, position, 0, last), inside


def unheld(
    e: Loops, array: Array, index: tuple[Index, ...], last: int, _: bool
) -> tuple[Index, ty.Value]:
    """An element as it is, and whether it is between 0 and `last`."""
    position = read_position(e, array, index)
    return position, _inside(e, position, last)


def clamped(e: Loops, position: ty.Value, last: int) -> Index:
    """A position moved inside."""
    if last <= 0:
        return 0
    width = ty.width_of(position)
    zero, top = ty.constant(ty.I64, 0, width), ty.constant(ty.I64, last, width)
    position = e.b.select(e.b.icmp_signed("<", position, zero), zero, position)
    position = e.b.select(e.b.icmp_signed(">", position, top), top, position)
    return spanning(e.b, position, 0, last)


def _inside(e: Loops, position: ty.Value, last: int) -> ty.Value:
    top = ty.constant(ty.I64, last, ty.width_of(position))
    return e.b.icmp_unsigned("<=", position, top)
