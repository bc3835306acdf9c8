"""Vectors as sums under way: made as wide as others, and joined into numbers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.constants import nothing, positions
from onescan.emit.folds import Combine


def widened(b: ty.Builder, x: ty.Value, width: int) -> ty.Value:
    """A number or a vector, and zeros behind it."""
    held, element = ty.width_of(x), ty.element_type(x)
    if not held:
        return b.insert_element(ty.constant(element, 0, width), x, ty.FIRST)
    places = [*range(held), *[held] * (width - held)]
    return b.shuffle_vector(x, ty.constant(element, 0, held), positions(*places))


def joined(
    b: ty.Builder, values: list[ty.Value], combine: Combine, dtype: Any
) -> list[ty.Value]:
    """The lanes of each of several vectors combined pairwise into a scalar.

    Two vectors become one at a time, which holds half as many numbers of each.
    """
    size = ty.width_of(values[0])
    left = [(value, 1) for value in values]  # a vector, and how many it is made of
    while size > 1:
        pairs = [left[k : k + 2] for k in range(0, len(left), 2)]
        left = [
            _folded(b, pair, size, len(pairs) > 1, combine, dtype) for pair in pairs
        ]
        size //= 2
    return [
        b.extract_element(value, ir.Constant(ty.I32, k))
        if ty.width_of(value)
        else value
        for value, count in left
        for k in range(count)
    ]


def _folded(
    b: ty.Builder,
    pair: list[tuple[ty.Value, int]],
    size: int,
    filled: bool,
    combine: Combine,
    dtype: Any,
) -> tuple[ty.Value, int]:
    """Two vectors, or one, that hold `size` numbers of each value, as one with half.

    Those that others are to be joined with are `filled` up to the same width.
    """
    width = ty.width_of(pair[0][0])
    starts = [k * width + i * size for k, (_, n) in enumerate(pair) for i in range(n)]
    halves = []
    for first in (0, size // 2):
        places = [start + first + i for start in starts for i in range(size // 2)]
        if filled:
            places += places[-1:] * (width - len(places))
        halves.append(_picked(b, [value for value, _ in pair], places))
    return combine(b, dtype, *halves), len(starts)


def _picked(b: ty.Builder, vectors: list[ty.Value], places: list[int]) -> ty.Value:
    """These numbers of one or two vectors, as a vector or as a number."""
    if len(places) == 1:
        return b.extract_element(vectors[0], ir.Constant(ty.I32, places[0]))
    x, y = vectors if len(vectors) == 2 else (*vectors, nothing(vectors[0].type))
    return b.shuffle_vector(x, y, positions(*places))
