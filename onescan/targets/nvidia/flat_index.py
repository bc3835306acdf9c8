"""Numbers of elements in row-major order, and the indices they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Index, add, scale


def unflattened(b: ty.Builder, flat: Index, shape: Iterable[int]) -> tuple[Index, ...]:
    """The index of an element, from its number in row-major order."""
    shape = tuple(shape)
    if isinstance(flat, int):
        return tuple(int(i) for i in np.unravel_index(flat, shape))
    if sum(n > 1 for n in shape) <= 1:
        return tuple(0 if n == 1 else flat for n in shape)
    index: list[Index] = []
    # 32 bits divide faster, and no tile has that many elements
    rest = b.trunc(flat, ty.I32)
    first = next(i for i, n in enumerate(shape) if n > 1)
    for i in reversed(range(len(shape))):
        n = shape[i]
        if n == 1:
            index.append(0)
        elif i == first:
            index.append(b.zext(rest, ty.I64))
        else:
            size = ir.Constant(ty.I32, n)
            index.append(b.zext(b.urem(rest, size), ty.I64))
            rest = b.udiv(rest, size)
    return tuple(reversed(index))


def same(i: Index) -> Any:
    """What two indices have in common if they are the same."""
    return i if isinstance(i, int) else id(i)


def flattened(b: ty.Builder, index: tuple[Index, ...], shape: Iterable[int]) -> Index:
    """The number of an element in row-major order."""
    flat: Index = 0
    for i, n in zip(index, shape, strict=True):
        flat = add(b, scale(b, flat, n), i)
    return flat
