"""Long tables are sampled in the suite, and run whole by `make test-all`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product
from typing import Any, TypeVar
from zlib import crc32

import pytest
from hypothesis import settings
from old_xla import NEWEST

T = TypeVar("T")

#: cases of a test of which half are enough
MANY = 4
#: whether everything is run
WHOLE = bool(os.environ.get("ONESCAN_TEST_ALL"))


def sample(items: Iterable[T], one_of: int) -> list[T]:
    """One of so many items, the same ones in every run."""
    found = list(items)
    if WHOLE:
        return found
    return [item for item in found if crc32(str(item).encode()) % one_of == 0]


def in_turns(tests: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Half of the cases of tests that have many, the other half where JAX is older.

    CI runs the suite on both.
    """
    found = list(tests)
    cases = Counter(_function(test) for test in found)
    return [
        test
        for test in found
        if cases[_function(test)] < MANY
        or crc32(test.nodeid.encode()) % 2 == (0 if NEWEST else 1)
    ]


def _function(test: pytest.Item) -> str:
    return test.nodeid.partition("[")[0]


def pairs(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Some of the combinations: every two values of two parameters meet in one."""
    every = list(product(*parameters))
    if WHOLE or len(parameters) < 3:
        return every
    meetings = [
        {(i, j, repr(c[i]), repr(c[j])) for i, j in combinations(range(len(c)), 2)}
        for c in every
    ]
    missing, chosen = set().union(*meetings), []
    while missing:
        best = max(range(len(every)), key=lambda k: len(meetings[k] & missing))
        missing -= meetings[best]
        chosen.append(every[best])
    return chosen


def examples(count: int) -> Any:
    """So many examples in the suite, and fifty times as many in `make fuzz`."""
    fuzzing = settings.get_current_profile_name() == "fuzz"
    return settings(max_examples=50 * count if fuzzing else count)
