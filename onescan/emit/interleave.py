"""Vectors out of rows: lanes whose few numbers lie side by side in memory.

A batch of small vectors, (lanes, D) in row-major order, holds the D numbers of
each lane together.  A kernel wants one number of many lanes in a vector.  D
whole vectors are read or written at a time, and shuffled between the two orders
in registers; nothing outside the rows is touched.
"""

from __future__ import annotations

from onescan.emit import types as ty
from onescan.emit.constants import nothing, positions

#: lanes shuffled at a time: one SIMD register of 4-byte numbers
CHUNK = 16


def _mixed(
    b: ty.Builder, parts: list[ty.Value], picks: list[tuple[int, int]]
) -> ty.Value:
    """A vector whose element k is element picks[k][1] of parts[picks[k][0]]."""
    width = ty.width_of(parts[0])
    result = parts[0]
    for turn, part in enumerate(parts):
        if turn == 0:
            mask = [i if p == 0 else 0 for p, i in picks]
            other = nothing(part.type)
            result = _shuffled(b, part, other, mask)
        else:
            mask = [width + i if p == turn else k for k, (p, i) in enumerate(picks)]
            result = _shuffled(b, result, part, mask)
    return result


def _shuffled(b: ty.Builder, x: ty.Value, y: ty.Value, mask: list[int]) -> ty.Value:
    return b.shuffle_vector(x, y, positions(*mask))


def gathered(b: ty.Builder, rows: list[ty.Value], number: int) -> ty.Value:
    """Number `number` of every lane, from the lanes' rows read as vectors."""
    count, width = len(rows), ty.width_of(rows[0])
    places = [lane * count + number for lane in range(width)]
    return _mixed(b, rows, [divmod(place, width) for place in places])


def scattered(b: ty.Builder, numbers: list[ty.Value]) -> list[ty.Value]:
    """The lanes' rows, as vectors to write, from one vector for each number."""
    count, width = len(numbers), ty.width_of(numbers[0])
    rows = []
    for row in range(count):
        places = range(row * width, (row + 1) * width)
        picks = [(place % count, place // count) for place in places]
        rows.append(_mixed(b, numbers, picks))
    return rows


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
