"""Numbers that stand side by side, as vectors: which shuffles, and how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from onescan.emit import interleave


@dataclass(frozen=True)
class Numbers:
    """A vector whose elements are known."""

    elements: tuple[int, ...]


class Shuffles:
    """Shuffles of such vectors, each done once, as a builder does."""

    def __init__(self) -> None:
        self.done: dict[Any, Numbers] = {}

    def shuffle_vector(self, x: Numbers, y: Numbers, mask: tuple[int, ...]) -> Numbers:
        both = x.elements + y.elements
        found = Numbers(tuple(both[i] for i in mask))
        return self.done.setdefault((x, y, mask), found)


def shuffled(b: Any, x: Numbers, y: Numbers, places: Any) -> Numbers:
    return b.shuffle_vector(x, y, tuple(place or 0 for place in places))


@pytest.fixture(autouse=True)
def _of_numbers():
    with (
        mock.patch.object(interleave.ty, "width_of", lambda v: len(v.elements)),
        mock.patch.object(interleave, "exchanged", shuffled),
    ):
        yield


def both_ways(count: int, width: int) -> tuple[int, int]:
    """The shuffles from rows to numbers and back, which are right."""
    memory = tuple(range(count * width))
    starts = range(0, count * width, width)
    rows = [Numbers(memory[start : start + width]) for start in starts]
    numbers = [Numbers(memory[number::count]) for number in range(count)]
    there: Any = Shuffles()
    back: Any = Shuffles()
    assert [interleave.gathered(there, rows, i) for i in range(count)] == numbers
    assert interleave.scattered(back, numbers) == rows
    return len(there.done), len(back.done)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_every_number_of_side_by_side_numbers(width):
    for count in range(1, 20):
        both_ways(count, width)


def test_as_few_shuffles_as_a_transposition():
    for stages in range(1, 5):
        count = 1 << stages
        assert both_ways(count, 16) == (stages * count, stages * count)
    assert max(both_ways(3, 16)) == 6
    assert max(both_ways(7, 16)) < 5 * 7
