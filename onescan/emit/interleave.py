"""Vectors out of rows: lanes whose few numbers lie side by side in memory.

A batch of small vectors, (lanes, D) in row-major order, holds the D numbers of
each lane together.  A kernel wants one number of many lanes in a vector.  D
whole vectors are read or written at a time, and shuffled between the two orders
in registers; nothing outside the rows is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from onescan.emit import types as ty
from onescan.emit.constants import nothing, positions
from onescan.emit.shuffles import exchanged

#: lanes shuffled at a time: one SIMD register of 4-byte numbers
CHUNK = 16


#: one of several vectors, by its number; or a shuffle of two, and its mask
Tree = int | tuple["Tree", "Tree", tuple[int | None, ...]]


@cache
def _tree(held: tuple[range, ...], wanted: tuple[range, ...], number: int) -> Tree:
    """How vector `number` of those `wanted` is made of those `held`.

    Elements are named by their place in memory.  Two vectors become one by a shuffle,
    over and over; on the way a vector holds what the neighbours of this number need as
    well, as far as it has room.  So all numbers share most of their shuffles, and are
    together as few as a transposition.
    """
    width = len(held[0])

    def node(low: int, high: int) -> tuple[Tree, Sequence[int]]:
        if high - low == 1:
            return low, held[low]
        there = {place for places in held[low:high] for place in places}
        size, needed = 1 << len(wanted).bit_length(), sorted(there)
        while len(needed) > width:
            size //= 2
            first = number // size * size
            block = {p for places in wanted[first : first + size] for p in places}
            needed = sorted(block & there)
        middle = (low + high) // 2
        (x, left), (y, right) = node(low, middle), node(middle, high)
        places = [*left, *[None] * (width - len(left)), *right]
        mask = [places.index(place) for place in needed]
        return (x, y, (*mask, *[None] * (width - len(mask)))), needed

    return node(0, len(held))[0]


def _grown(b: ty.Builder, tree: Tree, parts: list[ty.Value]) -> ty.Value:
    """The vector of a tree over these."""
    if isinstance(tree, int):
        return parts[tree]
    x, y, mask = tree
    return exchanged(b, _grown(b, x, parts), _grown(b, y, parts), mask)


def _shuffled(b: ty.Builder, x: ty.Value, y: ty.Value, mask: Sequence[int]) -> ty.Value:
    return b.shuffle_vector(x, y, positions(*mask))


def _orders(count: int, width: int) -> tuple[tuple[range, ...], tuple[range, ...]]:
    """The places in memory of each row, and of each number of all lanes."""
    size = count * width
    rows = (range(start, start + width) for start in range(0, size, width))
    return tuple(rows), tuple(range(number, size, count) for number in range(count))


def gathered(b: ty.Builder, rows: list[ty.Value], number: int) -> ty.Value:
    """Number `number` of every lane, from the lanes' rows read as vectors."""
    held, wanted = _orders(len(rows), ty.width_of(rows[0]))
    return _grown(b, _tree(held, wanted, number), rows)


def scattered(b: ty.Builder, numbers: list[ty.Value]) -> list[ty.Value]:
    """The lanes' rows, as vectors to write, from one vector for each number."""
    count = len(numbers)
    wanted, held = _orders(count, ty.width_of(numbers[0]))
    trees = [_tree(held, wanted, row) for row in range(count)]
    return [_grown(b, tree, numbers) for tree in trees]


def regrouping(count: int) -> int:
    """Operations for a vector of one of so many numbers that stand side by side."""
    return count.bit_length()


def chunks(b: ty.Builder, value: ty.Value) -> list[ty.Value]:
    """A vector cut into pieces of at most CHUNK lanes."""
    width = ty.width_of(value)
    if width <= CHUNK:
        return [value]
    return [
        _shuffled(b, value, nothing(value.type), list(range(k, k + CHUNK)))
        for k in range(0, width, CHUNK)
    ]


def joined(b: ty.Builder, pieces: list[ty.Value]) -> ty.Value:
    """The pieces of a vector, one after the other."""
    while len(pieces) > 1:
        width = ty.width_of(pieces[0])
        mask = list(range(2 * width))
        pieces = [
            _shuffled(b, x, y, mask)
            for x, y in zip(pieces[::2], pieces[1::2], strict=True)
        ]
    return pieces[0]
