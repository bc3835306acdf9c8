"""Values of a body: an `Array` is a function from an index to a register value.

Elementwise chains, broadcasts, transposes and slices compose such functions, so
they fuse and cost nothing by themselves.  An index has one component for each
dimension: a Python int (unrolled code), an i64 (a loop), a `Vec` (consecutive
positions, one for each vector lane), or a vector of i64 (a position for each
lane, from data).  Dimensions that are spread over tiles have the tile's own
extent here: an index is local to the tile.

`Memory` is where arrays live: typed, with static strides, and a scalar offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import gcd, prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import interleave
from onescan.emit import types as ty
from onescan.emit.builder import never_changes
from onescan.emit.constants import integer
from onescan.emit.joining import together
from onescan.emit.lines import Line, multiple_of
from onescan.emit.math.features import AVX512, has


@dataclass(frozen=True)
class Vec:
    """The positions base, base + 1, ..., base + width - 1."""

    base: int | ty.Value
    width: int


Index = int | ty.Value | Vec
Groups = list[tuple[list[int], list[int]]]


def as_value(b: ty.Builder, index: Index) -> ty.Value:
    """An index component as an i64, or a vector of them."""
    if isinstance(index, int):
        return integer(index)
    if isinstance(index, Vec):
        base = ty.splat(b, as_value(b, index.base), index.width)
        return b.add(base, ty.iota(ty.I64, index.width))
    return index


def add(b: ty.Builder, x: Index, y: Index) -> Index:
    """The sum of two index components, folded where it can be."""
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if x == 0 and isinstance(x, int):
        return y
    if y == 0 and isinstance(y, int):
        return x
    if isinstance(x, Vec) and not isinstance(y, Vec) and not _is_vector(y):
        return Vec(add(b, x.base, y), x.width)  # type: ignore[arg-type]
    if isinstance(y, Vec) and not isinstance(x, Vec) and not _is_vector(x):
        return Vec(add(b, y.base, x), y.width)  # type: ignore[arg-type]
    total = b.add(*ty.match(b, as_value(b, x), as_value(b, y)))
    if isinstance(total, Line):
        total.multiple = gcd(multiple_of(x), multiple_of(y))
    one, other = span(b, x), span(b, y)
    if one is not None and other is not None:
        spanning(b, total, one[0] + other[0], one[1] + other[1])
    return total


def span(b: ty.Builder, index: Index) -> tuple[int, int] | None:
    """The lowest and the highest position that an index stands for, if known."""
    if isinstance(index, int):
        return index, index
    if isinstance(index, Vec):
        known = span(b, index.base)
        return known and (known[0], known[1] + index.width - 1)
    return getattr(b, "spans", {}).get(index.get_reference())


def spanning(b: ty.Builder, index: ty.Value, low: int, high: int) -> ty.Value:
    """An index whose lowest and highest values are known."""
    getattr(b, "spans", {})[index.get_reference()] = low, high
    return index


def scale(b: ty.Builder, x: Index, factor: int) -> Index:
    """An index component times a constant."""
    if factor == 1:
        return x
    if factor == 0:
        return 0
    if isinstance(x, int):
        return x * factor
    value = as_value(b, x)
    result = b.mul(value, ty.constant(ty.I64, factor, ty.width_of(value)))
    if isinstance(result, Line):
        result.multiple = abs(factor) * multiple_of(x)
    if (known := span(b, x)) is not None:
        spanning(b, result, *sorted(place * factor for place in known))
    return result


def _is_vector(x: Index) -> bool:
    return isinstance(getattr(x, "type", None), ir.VectorType)


def is_one(x: Index) -> bool:
    return isinstance(x, int) and x == 1


def is_scalar(x: Index) -> bool:
    """Whether an index is one position, not one for each lane."""
    return not isinstance(x, Vec) and not _is_vector(x)


DEEPEST = 8
#: distances that 32 bits count
FAR = 1 << 31


def divisor(index: Index, depth: int = DEEPEST) -> int:
    """A number that surely divides an index; 0 if that is 0."""
    if isinstance(index, int):
        return index
    if isinstance(index, ir.Constant) and isinstance(index.constant, int):
        return index.constant
    if not isinstance(index, ir.Instruction) or not depth:
        return 1
    known = [divisor(x, depth - 1) for x in index.operands if x.type == index.type]
    if index.opname in ("add", "sub") or (index.opname == "select" and len(known) == 2):
        return gcd(*known)
    if index.opname == "mul":
        return prod(known)
    if index.opname == "zext":
        return divisor(index.operands[0], depth - 1)
    return 1


@dataclass(frozen=True, eq=False)
class Memory:
    """Strided memory of one dtype; `offset` counts elements from `pointer`.

    With `group` > 1, that many numbers of each vector lane lie side by side, in
    the dimensions whose strides are smaller.  Complex numbers are two parts side by
    side, and `part` is the one that is meant; strides and offset count parts.
    """

    pointer: ty.Value
    dtype: np.dtype
    strides: tuple[int, ...]
    offset: int | ty.Value = 0
    align: int = 1
    group: int = 1
    fixed: bool = False  # a kernel never writes it, and may be told so
    steady: bool = False  # and it is the same in every step
    parts: int = 1
    part: int = 0

    def within(self, b: ty.Builder, position: Index) -> Memory:
        """What lies at a position of the first dimension."""
        first, *rest = self.strides
        offset = add(b, self.offset, scale(b, position, first))
        return replace(self, strides=tuple(rest), offset=offset)

    def moved(self, b: ty.Builder, index: tuple[Index, ...]) -> Memory:
        """What lies from an index on, so that distances from there are constants."""
        first = tuple(i.base if isinstance(i, Vec) else i for i in index)
        start, _, _ = self._place(b, first)
        align = self._alignment(start)
        return replace(self, pointer=self._address(b, start), offset=0, align=align)

    def _place(
        self, b: ty.Builder, index: tuple[Index, ...], part: int = 0
    ) -> tuple[Index, int, Index]:
        """Where the first lane is, how many there are, and where the others are.

        That is how far they are apart, or for each its distance from the start; a
        scalar has no lanes.
        """
        start = add(b, self.offset, part)
        apart, width, wild = 0, 0, None
        for component, stride in zip(index, self.strides, strict=True):
            if isinstance(component, Vec):
                width = component.width
                apart += stride
                start = add(b, start, scale(b, component.base, stride))
            elif _is_vector(component):
                width = component.type.count  # type: ignore[union-attr]
                places = scale(b, component, stride)
                wild = places if wild is None else add(b, wild, places)
            else:
                start = add(b, start, scale(b, component, stride))
        if wild is None:
            return (start, width, apart) if apart else (start, 0, 0)
        if apart:
            wild = add(b, wild, scale(b, Vec(0, width), apart))
        return start, width, wild

    def _address(self, b: ty.Builder, position: Index) -> ty.Value:
        if isinstance(position, int) and position == 0:
            return self.pointer
        element = ty.memory_type(self.dtype)
        place = as_value(b, position)
        return b.gep(self.pointer, [place], inbounds=True, source_etype=element)

    def start(self, b: ty.Builder) -> ty.Value:
        """Where it begins, which may be past the end of what there is."""
        element = ty.memory_type(self.dtype)
        place = as_value(b, self.offset)
        return b.gep(self.pointer, [place], source_etype=element)

    def is_dense(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape stands here without gaps, in order."""
        size = self.parts
        for n, stride in zip(reversed(shape), reversed(self.strides), strict=True):
            if n > 1 and stride != size:
                return False
            size *= n
        return True

    def reshaped(
        self, old: tuple[int, ...], new: tuple[int, ...], groups: Groups
    ) -> Memory | None:
        """The same memory as an array of another shape, if that needs no copy.

        Each of `groups` are dimensions of the old shape, and those they become.
        """
        strides = [0] * len(new)
        for before, after in groups:
            inner = [i for i in before if old[i] > 1]
            for i, j in pairwise(inner):
                if self.strides[i] != self.strides[j] * old[j]:
                    return None
            step = self.strides[inner[-1]] if inner else 0
            for i in reversed(after):
                strides[i] = step
                step *= new[i]
        return None if self.group > 1 else replace(self, strides=tuple(strides))

    def address(self, b: ty.Builder, position: Index) -> ty.Value:
        """Where a number stands, counted in numbers from the offset."""
        return self._address(b, add(b, self.offset, position))

    def _alignment(self, position: Index) -> int:
        size = self.dtype.itemsize
        return max(size, gcd(divisor(position) * size, self.align))

    def _number(self, index: tuple[Index, ...]) -> int | None:
        """Which number of each lane a vector index asks for, if that is known."""
        vectors = [
            stride
            for component, stride in zip(index, self.strides, strict=True)
            if isinstance(component, Vec)
        ]
        if self.group == 1 or vectors != [self.group]:
            return None
        number = self.part
        for component, stride in zip(index, self.strides, strict=True):
            if stride < self.group:
                if not isinstance(component, int):
                    return None
                number += component * stride
        return number

    def _rows(self, b: ty.Builder, index: tuple[Index, ...]) -> tuple[Index, int]:
        """Where the groups of a vector of lanes begin, and how many lanes it has."""
        first = tuple(
            0 if stride < self.group else i.base if isinstance(i, Vec) else i
            for i, stride in zip(index, self.strides, strict=True)
        )
        width = next(i.width for i in index if isinstance(i, Vec))
        return self._place(b, first)[0], width

    def load(self, b: ty.Builder, index: tuple[Index, ...]) -> ty.Value:
        element = ty.memory_type(self.dtype)
        if (number := self._number(index)) is not None:
            start, width = self._rows(b, index)
            value = self._load_group(b, start, width, number)
            return ty.from_memory(b, value, self.dtype)
        start, width, others = self._place(b, index, self.part)
        if width and not is_one(others):
            value = self._gather(b, start, others, element, width)
        else:
            kind = ty.with_width(element, width)
            address = self._address(b, start)
            value = b.load(address, typ=kind, align=self._alignment(start))
            if self.fixed:
                never_changes(b, value)
        return ty.from_memory(b, value, self.dtype)

    def _load_group(
        self, b: ty.Builder, start: Index, width: int, number: int
    ) -> ty.Value:
        lanes = min(width, interleave.CHUNK)
        kind = ty.with_width(ty.memory_type(self.dtype), lanes)
        pieces = []
        for chunk in range(0, width, lanes):
            rows = []
            for row in range(self.group):
                place = add(b, start, chunk * self.group + row * lanes)
                address = self._address(b, place)
                rows.append(b.load(address, typ=kind, align=self.dtype.itemsize))
            pieces.append(interleave.gathered(b, rows, number))
        return interleave.joined(b, pieces)

    def store_group(
        self, b: ty.Builder, index: tuple[Index, ...], values: list[ty.Value]
    ) -> None:
        """Store every number of a vector of lanes; `index` is that of the first."""
        start, width = self._rows(b, index)
        stored = [
            interleave.chunks(b, ty.to_memory(b, ty.splat(b, v, width), self.dtype))
            for v in values
        ]
        lanes = min(width, interleave.CHUNK)
        for chunk, numbers in enumerate(zip(*stored, strict=True)):
            for row, value in enumerate(interleave.scattered(b, list(numbers))):
                place = chunk * lanes * self.group + row * lanes
                address = self._address(b, add(b, start, place))
                b.store(value, address, align=self.dtype.itemsize)

    def _gather(
        self, b: ty.Builder, start: Index, others: Index, element: ty.Kind, width: int
    ) -> ty.Value:
        known = span(b, others) if _is_vector(others) else None
        near = known is not None and known[0] > -FAR and known[1] < FAR
        if near and has(b, AVX512) and self.dtype.itemsize >= 4:
            return b.gather(self._address(b, start), others, element)
        values = []
        for lane in range(width):
            address = self._lane(b, start, others, lane)
            values.append(b.load(address, typ=element, align=self.dtype.itemsize))
        return together(b, values)

    def _lane(self, b: ty.Builder, start: Index, others: Index, lane: int) -> ty.Value:
        """Where a lane of a vector stands."""
        if isinstance(others, int):
            return self._address(b, add(b, start, lane * others))
        place = b.extract_element(others, ir.Constant(ty.I32, lane))
        return self._address(b, add(b, start, place))

    def store(self, b: ty.Builder, index: tuple[Index, ...], value: ty.Value) -> None:
        start, width, others = self._place(b, index, self.part)
        value = ty.to_memory(b, ty.splat(b, value, width), self.dtype)
        if not width or is_one(others):
            b.store(value, self._address(b, start), align=self._alignment(start))
            return
        for lane in range(width):
            address = self._lane(b, start, others, lane)
            part = b.extract_element(value, ir.Constant(ty.I32, lane))
            b.store(part, address, align=self.dtype.itemsize)


At = Callable[[tuple[Index, ...]], ty.Value]
#: for each dimension, the positions where one piece ends and another begins
Cuts = tuple[frozenset[int], ...]


@dataclass(frozen=True, eq=False)
class Array:
    """A value of the body, pulled one index at a time."""

    shape: tuple[int, ...]
    dtype: np.dtype
    at: At
    memory: Memory | None = None  # where it stands, if it stands anywhere
    reads: frozenset[Memory] = field(default_factory=frozenset)
    #: what of that is read at other places than the index that is pulled
    elsewhere: frozenset[Memory] = field(default_factory=frozenset)
    cost: int = 0  # operations to pull one element
    #: what of that others pull as well, and it is computed once: which, and its cost
    shared: frozenset[tuple[Any, int]] = field(default_factory=frozenset)
    depth: int = 0  # calls, one inside the other, to pull one element
    lanes: tuple[Any, ...] = ()  # for each dimension, the lane axis it is, or None
    steady: bool = False  # whether it is known to be the same in every step
    cuts: Cuts = ()  # where loops over it are better cut; () is nowhere
    #: whether walking over them costs much, because each place pulls all pieces
    patchwork: bool = False
    window: tuple[Array, tuple[int, ...]] | None = None  # of what, and from where on
    #: for each dimension, how far apart its numbers stand that are pulled from memory
    apart: tuple[int, ...] | None = None

    def stride(self, dim: int) -> int | None:
        """How far apart neighbours along a dimension stand, as far as known."""
        apart = self.apart if self.memory is None else self.memory.strides
        if apart is not None:
            return apart[dim]
        return 1 if dim == len(self.shape) - 1 else None

    @property
    def own_cost(self) -> int:
        """Operations of an element that nobody else pulls."""
        return self.cost - sum(cost for _, cost in self.shared)
