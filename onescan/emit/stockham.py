"""Stockham's method: transforms along an axis, stage by stage.

A stage combines four numbers (two in the last one, if need be) that lie a quarter of
the axis apart, and writes them so that the last stage leaves all in order.  The
combinations of a stage are independent, so they are done in lanes, in vectors along
other axes, or by threads.  Transforms of one shape share the code of their stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, Vec, add, as_value, scale
from onescan.emit.constants import integer
from onescan.emit.emitter import Emitter
from onescan.emit.routines import is_plain

#: operations of a combination
COST = 40
#: vectors of each of its numbers at once: more do not fit into registers
SEVERAL = 2

Pair = tuple[ty.Value, ty.Value]
Place = tuple[Index, ...]
At = Callable[[Place], Pair]
Memories = Sequence[Memory]


@dataclass(frozen=True)
class Source:
    """Complex numbers by their place, and the memories that a routine reads them from.

    There are none where numbers are computed as they are read.
    """

    at: At
    memories: Memories | None = None

    def beginning(self, e: Emitter, place: Place) -> At:
        """The numbers by their distance from a place."""
        if self.memories is not None:
            return standing(e, [m.moved(e.b, place) for m in self.memories]).at
        sums = lambda distance: zip(place, distance, strict=True)
        return lambda distance: self.at(tuple(_sum(e.b, *x) for x in sums(distance)))


def _sum(b: ty.Builder, place: Index, distance: Index) -> Index:
    return add(b, place, distance.base if isinstance(distance, Vec) else distance)


def distance(place: Place, axis: int, steps: int) -> Place:
    """From a place to one that is some steps away along an axis."""
    none = (Vec(0, i.width) if isinstance(i, Vec) else 0 for i in place)
    return tuple(steps if k == axis else i for k, i in enumerate(none))


def source_of(e: Emitter, re: Array, im: Array) -> Source:
    memories: Any = [re.memory, im.memory]
    taken = e.has_routines and all(map(is_plain, memories))
    return Source(lambda p: (re.at(p), im.at(p)), memories if taken else None)


def standing(e: Emitter, memories: Memories) -> Source:
    def at(place: Place) -> Pair:
        re, im = (memory.load(e.b, place) for memory in memories)
        return re, im

    return Source(at, memories)


def put(e: Emitter, memories: Memories, place: Place, pair: Pair) -> None:
    for memory, part in zip(memories, pair, strict=True):
        memory.store(e.b, place, part)


def scratch(
    e: Emitter, shape: tuple[int, ...], lanes: tuple[Any, ...], dtype: Any, name: Any
) -> Memories:
    """Memory for pairs, which all transforms of such a shape use in turns."""
    key = "fft", shape, lanes, np.dtype(dtype), name
    if key not in e.rooms:
        e.rooms[key] = [e.scratch(shape, lanes, dtype) for _ in range(2)]
    return e.rooms[key]


def turns(e: Emitter, angles: np.ndarray, dtype: Any) -> Source:
    """exp(-2 pi i x), for a table of x."""
    tables = np.cos(2 * np.pi * angles), -np.sin(2 * np.pi * angles)
    return standing(e, [e.constant_data(t.astype(dtype)) for t in tables])


class Stages:
    """Along one axis of an array; other places are walked in vectors.

    The results are `turned` where the last two axes are one, taken as a matrix, and
    these are its columns: the transforms of its rows want them turned by angles.
    """

    def __init__(
        self,
        e: Emitter,
        shape: tuple[int, ...],
        lanes: tuple[Any, ...],
        axis: int,
        dtype: Any,
        turned: bool = False,
    ) -> None:
        self.e, self.shape, self.lanes = e, shape, lanes
        self.axis, self.n, self.dtype = axis, shape[axis], np.dtype(dtype)
        self.vector = len(shape) - 1 if axis < len(shape) - 1 else None
        self.turned, self.radices = turned, radices(self.n)

    def end(self, number: int, target: Memories, other: Memories) -> Memories:
        """Where a stage writes: the last one to the target, by turns with another."""
        return (target, other)[(len(self.radices) - 1 - number) % 2]

    def run(
        self, source: Source, target: Memories, other: Memories, start: int = 0
    ) -> None:
        """The stages from `start` on, which reads the source."""
        for number in range(start, len(self.radices)):
            made = self.end(number, target, other)
            self.stage(number, source, made)
            source = standing(self.e, made)

    def stage(self, number: int, source: Source, target: Memories) -> None:
        e, axis, radix = self.e, self.axis, self.radices[number]
        share, apart = self.n // radix, prod(self.radices[:number])
        is_last = number == len(self.radices) - 1
        between = None if is_last else self._angles_between()
        final = self._angles_of_matrix() if is_last and self.turned else None

        def visit(place: Place) -> None:
            *front, t = place[: axis + 1]
            read = source.beginning(e, place)
            pairs = (read(distance(place, axis, k * share)) for k in range(radix))
            parts = ty.match(e.b, *(part for pair in pairs for part in pair))
            numbers = list(zip(parts[::2], parts[1::2], strict=True))
            inside = _below(e.b, t, apart)  # and the rest, a multiple of `apart`
            whole = _minus(e.b, t, inside)
            first = add(e.b, inside, scale(e.b, whole, radix))
            to = *front, first, *place[axis + 1 :]
            ends = [memory.moved(e.b, to) for memory in target]
            turn = final and final.beginning(e, to[-2:])
            for j, pair in enumerate(combined(e.b, numbers)):
                step = distance(place, axis, j * apart)
                if between is not None and j:
                    pair = times(e.b, pair, between.at((scale(e.b, whole, j),)))
                if turn is not None:
                    pair = times(e.b, pair, turn(step[-2:]))
                put(e, ends, step, pair)

        shape = (*self.shape[:axis], share, *self.shape[axis + 1 :])
        e.nest(shape, self.lanes, visit, self.vector, COST, several=SEVERAL)

    def _angles_between(self) -> Source:
        return turns(self.e, np.arange(self.n) / self.n, self.dtype)

    def _angles_of_matrix(self) -> Source:
        rows, columns = self.shape[-2:]
        products = np.outer(np.arange(rows), np.arange(columns))
        return turns(self.e, products / products.size, self.dtype)


def radices(n: int) -> list[int]:
    """Fours, and a two at the end if n is not a power of four.

    >>> radices(32)
    [4, 4, 2]
    """
    if n == 1:
        return [1]
    bits = n.bit_length() - 1
    return [4] * (bits // 2) + [2] * (bits % 2)


def _below(b: ty.Builder, t: Index, apart: int) -> Index:
    """What is left of a number after division by a power of two."""
    if isinstance(t, int) or apart == 1:
        return t % apart if isinstance(t, int) else 0
    return b.and_(as_value(b, t), integer(apart - 1))


def _minus(b: ty.Builder, x: Index, y: Index) -> Index:
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    return x if y == 0 else b.sub(as_value(b, x), as_value(b, y))


def combined(b: ty.Builder, x: list[Pair]) -> list[Pair]:
    """The transform of one, two or four numbers."""
    if len(x) == 1:
        return x
    if len(x) == 2:
        return [_plus(b, x[0], x[1]), _less(b, x[0], x[1])]
    even, odd = combined(b, [x[0], x[2]]), combined(b, [x[1], x[3]])
    (re, im), (across, up) = even[1], odd[1]
    right = b.fadd(re, up), b.fsub(im, across)  # minus i times the other
    left = b.fsub(re, up), b.fadd(im, across)
    return [_plus(b, even[0], odd[0]), right, _less(b, even[0], odd[0]), left]


def _plus(b: ty.Builder, x: Pair, y: Pair) -> Pair:
    return b.fadd(x[0], y[0]), b.fadd(x[1], y[1])


def _less(b: ty.Builder, x: Pair, y: Pair) -> Pair:
    return b.fsub(x[0], y[0]), b.fsub(x[1], y[1])


def times(b: ty.Builder, x: Pair, y: Pair) -> Pair:
    a, c, d, f = ty.match(b, *x, *y)
    product = lambda p, q: b.fmul(p, q, flags=el.CONTRACT)
    re = b.fsub(product(a, d), product(c, f), flags=el.CONTRACT)
    return re, b.fadd(product(a, f), product(c, d), flags=el.CONTRACT)
