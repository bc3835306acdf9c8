"""What a named loop is, and the table that they all enter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np


class Problem(NamedTuple):
    """The arguments of one scan."""

    f: Callable[[Any, Any], tuple[Any, Any]]
    init: Any
    xs: Any = None
    kwargs: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Case:
    """A named loop: its arguments from a seed, and how to compare its results."""

    name: str
    make: Callable[[np.random.Generator], Problem]
    differentiable: bool
    rounding: float  # tolerance, in units of the usual one for the dtype

    def problem(self, seed: int = 0) -> Problem:
        return self.make(np.random.default_rng(seed))

    def __str__(self) -> str:
        return self.name


CASES: dict[str, Case] = {}


def case(
    *, differentiable: bool = True, rounding: float = 1.0
) -> Callable[[Callable[[np.random.Generator], Problem]], None]:
    """Enter a function from random numbers to a `Problem` into the table."""

    def enter(make: Callable[[np.random.Generator], Problem]) -> None:
        CASES[make.__name__] = Case(make.__name__, make, differentiable, rounding)

    return enter


def normal(
    rng: np.random.Generator, *shape: int, scale: float = 1.0, dtype: Any = np.float32
) -> Any:
    return (scale * rng.standard_normal(shape)).astype(dtype)
