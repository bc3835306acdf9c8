"""Jacobi's method by the threads of a block: many pairs of columns turn at a time.

A sweep is a tournament in which every column meets every other, by the circle method:
the last one stays where it is, the others go around, and in each round all are paired.
No two pairs of a round have a column in common.  It converges as a sweep by rows does
(Luk and Park, "On parallel Jacobi orderings", 1989).

An odd number of columns gets another one of zeros, which nothing ever turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, as_value
from onescan.emit.convert import like
from onescan.emit.linalg.jacobi import MOST, expected_sweeps, is_finite
from onescan.emit.linalg.matrix import magnitude, root, times
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_matrices import Matrices
from onescan.targets.nvidia.block_reductions import Place


@dataclass(frozen=True)
class Tournament:
    """Of n columns."""

    n: int

    @property
    def columns(self) -> int:
        """With the one that makes their number even."""
        return self.n + self.n % 2

    @property
    def pairs(self) -> int:
        """Of one round."""
        return self.columns // 2

    @property
    def rounds(self) -> int:
        return self.columns - 1

    def pair(
        self, b: ty.Builder, turn: ty.Value, number: Index
    ) -> tuple[ty.Value, ty.Value]:
        """The two columns of a pair of a round."""
        circle, last = (ir.Constant(ty.I64, k) for k in (self.rounds, self.columns - 1))
        number = as_value(b, number)
        ahead, behind = b.add(turn, number), b.sub(turn, number)
        is_over = b.icmp_signed(">=", ahead, circle)
        first = b.select(is_over, b.sub(ahead, circle), ahead)
        is_under = b.icmp_signed("<", behind, ir.Constant(ty.I64, 0))
        second = b.select(is_under, b.add(behind, circle), behind)
        alone = b.icmp_signed("==", number, ir.Constant(ty.I64, 0))
        return first, b.select(alone, last, second)


class Sweeps:
    """Sweeps until one turns nothing, which all threads learn from a common flag."""

    def __init__(self, e: BlockEmitter, tournament: Tournament) -> None:
        self.e, self.tournament = e, tournament
        # two, as a single number would be each thread's own
        self.flag: Any = e.scratch((2,), (None,), np.int32)

    def run(self, turn: Callable[[ty.Value], None]) -> None:
        """Run ``turn(round)`` for all rounds of a sweep, again and again."""
        e, about = self.e, expected_sweeps(self.tournament.n)
        with e.loop_while(self._is_raised, MOST, about):
            with e.phase(), e.first_thread():
                self.flag.store(e.b, (0,), ir.Constant(ty.I32, 0))
            with e.loop(self.tournament.rounds) as k:
                turn(k)

    def go_on(self) -> None:
        """There has to be another sweep, whoever says so."""
        self.flag.store(self.e.b, (0,), ir.Constant(ty.I32, 1))

    def _is_raised(self) -> ty.Value:
        self.e.sync()
        raised = self.flag.load(self.e.b, (0,))
        return self.e.b.icmp_signed("!=", raised, ir.Constant(ty.I32, 0))


class Problem:
    """Matrices divided by their sizes, and where their values go with their vectors."""

    e: BlockEmitter
    dtype: Any
    sizes: Array  # the largest number of each
    order: Array  # the place of each value

    def _given(self, batch: Place, i: Index, j: Index) -> ty.Value:
        raise NotImplementedError

    def _size(self, batch: Place, i: Index, j: Index) -> ty.Value:
        return magnitude(self.e.b, self._given(batch, i, j))

    def _put_share(self, memory: Any, batch: Place, squares: Array, parts: int) -> None:
        """What rounding leaves of a matrix, in so many parts of it."""
        b, share = self.e.b, float(np.finfo(self.dtype).eps) / parts
        whole = root(b, squares.at(batch))
        memory.store(b, batch, times(b, whole, like(whole, share)))

    def _at(self, batch: Place, j: Index) -> tuple[ty.Value, ty.Value]:
        """Where a value goes with its vectors, and whether they are numbers."""
        b = self.e.b
        good = is_finite(b, self.sizes.at(batch))
        rank = b.sext(self.order.at((*batch, j)), ty.I64)
        return b.select(good, rank, as_value(b, j)), good


def near(e: BlockEmitter, i: Index, n: int) -> tuple[ty.Value, ty.Value]:
    """A position, or the last of n, and whether it is one of them."""
    here = as_value(e.b, i)
    is_one = e.below(here, n)
    return e.b.select(is_one, here, ir.Constant(ty.I64, n - 1)), is_one


def ranks(
    of: Matrices, n: int, value: Callable[[Place, Index], ty.Value], before: str
) -> Array:
    """How many of n values come before each; of equal ones, those that stand there."""
    b = of.e.b
    one, zero = (ir.Constant(ty.I32, k) for k in (1, 0))

    def counted(batch: Place, j: Index, i: Index) -> ty.Value:
        x, y = (value(batch, k) for k in (i, j))
        is_before = b.fcmp_ordered(before, x, y)
        is_after = b.fcmp_ordered(before, y, x)
        stands_before = b.icmp_signed("<", as_value(b, i), as_value(b, j))
        is_equal = b.and_(stands_before, b.not_(is_after))
        return b.select(b.or_(is_before, is_equal), one, zero)

    return of.reduced("reduce_sum", np.int32, (n,), [n], counted)
