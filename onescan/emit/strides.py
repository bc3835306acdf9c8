"""Vectors of numbers that are not side by side, or not in order: read as if so."""

from __future__ import annotations

from typing import Any

from onescan.emit import types as ty
from onescan.emit.arrays import (
    Array,
    Index,
    Vec,
    add,
    as_value,
    is_scalar,
    span,
    spanning,
)
from onescan.emit.constants import positions
from onescan.emit.emitter import Emitter

#: numbers that are so far apart are read together with those between them
CLOSE = 4


def only_vector(index: tuple[Index, ...]) -> int | None:
    """The dimension along which an index is a vector, if it is one of neighbours."""
    wide = [i for i, part in enumerate(index) if not is_scalar(part)]
    return wide[0] if len(wide) == 1 and isinstance(index[wide[0]], Vec) else None


def every(
    e: Emitter, x: Array, place: list[Any], along: int, stride: int, width: int
) -> ty.Value:
    """A vector of every second number, say: all are read, and some of them kept.

    None is read behind the last one that is wanted.
    """
    begin, size = place[along], (width - 1) * stride + 1
    starts = [*range(0, size - width, width), size - width]
    value: Any = None
    for start in starts:
        place[along] = Vec(add(e.b, begin, start), width)  # type: ignore[arg-type]
        read = ty.splat(e.b, x.at(tuple(place)), width)
        found = [j * stride - start for j in range(width)]
        chosen = [width + k if k >= 0 else j for j, k in enumerate(found)]
        lanes = [k if k < 2 * width else 0 for k in chosen]  # or of a later read
        first = read if value is None else value
        value = e.b.shuffle_vector(first, read, positions(*lanes))
    return value


def backwards(
    e: Emitter, x: Array, place: list[Index], along: int, row: Vec
) -> ty.Value:
    """A vector along a reversed dimension: read forwards, and turned around."""
    place[along] = _up_to(e, row, x.shape[along])
    value = ty.splat(e.b, x.at(tuple(place)), row.width)
    back = positions(*reversed(range(row.width)))
    return e.b.shuffle_vector(value, value, back)


def _up_to(e: Emitter, row: Vec, size: int) -> Vec:
    """The positions that mirror those of a vector, in order."""
    end = size - row.width
    if isinstance(row.base, int):
        return Vec(end - row.base, row.width)
    base = e.b.sub(as_value(e.b, end), row.base)
    if (known := span(e.b, row.base)) is not None:
        spanning(e.b, base, end - known[1], end - known[0])
    return Vec(base, row.width)
