"""`Plan`: how a loop is laid over lanes, vectors and tiles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

from jax.extend.core import Var

from onescan.loop import Atom, Loop

#: fewer positions than this are done one by one: shuffles would cost more
SHORTEST = 4
#: numbers of a lane side by side up to which a kernel shuffles them in registers
INTERLEAVED = 4
#: the same where vectors lie along a dimension of the body: fewer than a vector has
ACROSS = 15


@dataclass(frozen=True, eq=False)
class Lane:
    """A lane axis as the kernel walks it: tiles of `blocks` times `extent` positions.

    A vector lane keeps `extent` positions in one SIMD vector, and walks over the
    blocks of its tile in every step; where the size is no multiple of the width,
    the last block starts earlier and does some positions again.  The positions
    of other lanes are looped over by each operation.
    """

    size: int
    extent: int
    vector: bool
    blocks: int = 1

    @property
    def tiles(self) -> int:
        return -(-self.size // (self.extent * self.blocks))


def is_across(lanes: Iterable[Lane | None]) -> bool:
    """Whether vectors lie across an array that lies along some lanes."""
    return any(lane and lane.vector for lane in lanes)


@dataclass(frozen=True)
class Grid:
    """How tiles lie over a GPU: one for each thread, or one for each block of them."""

    threads: int  # of a block
    together: bool  # whether the threads of a block share a tile
    team: int = 1  # blocks that share it with them
    unit: int = 0  # positions of the last dimension that the team has shares of


@dataclass(frozen=True)
class Tail:
    """The last steps of an operand, in an array of their own."""

    after: int  # how many steps stand in the first array
    start: int  # the step of the second array that follows them


def minor_dimension(shape: tuple[int, ...], width: int, across: int = ACROSS) -> int:
    """The last dimension, or the longest of those behind which are a few numbers."""
    last = len(shape) - 1
    if width < 2 or last < 1 or shape[last] >= width:
        return last
    few = [i for i in range(last + 1) if prod(shape[i + 1 :]) <= across]
    longest = max(few, key=lambda i: (shape[i], i), default=last)
    enough = width if shape[last] >= SHORTEST else min(width, SHORTEST)
    return longest if shape[longest] >= enough else last


@dataclass(frozen=True, eq=False)
class Plan:
    loop: Loop
    lanes: tuple[Lane, ...] = ()
    lane_of: dict[Var, dict[int, Lane]] = field(default_factory=dict)
    width: int = 1  # of vectors along inner dimensions; 1 where a lane is the vector
    common_width: int = 1  # the same, of values that all lanes of a vector share
    layouts: tuple[tuple[int, ...], ...] = ()  # of operands, then results: minor last
    across: int = ACROSS  # numbers that vectors along another dimension lie across
    threads: bool = False
    grain: int = 1
    grid: Grid | None = None  # on a GPU
    features: frozenset[str] = frozenset()  # of the processor
    l2: int = 1 << 20  # bytes of a core's L2 cache
    stored: frozenset[Any] = frozenset()  # values that are put into memory in any case
    longest: float = inf  # instructions from which a kernel takes too long to compile
    #: by operand: the step of its array that the loop reads first
    starts: dict[int, int] = field(default_factory=dict)
    #: by operand: the steps of its array, if they are more than those of the loop
    wholes: dict[int, int] = field(default_factory=dict)
    #: by operand: where the rest of its steps stand, in one more operand each
    tails: dict[int, Tail] = field(default_factory=dict)
    counters: frozenset[int] = frozenset()  # operands that are the numbers of the steps
    #: real parts among operands and then results, that share a buffer with the next one
    joined: frozenset[int] = frozenset()
    zeros: frozenset[int] = frozenset()  # operands that are all zeros, and not read
    stencil: bool = False  # whether positions of a large grid look at their neighbours
    parallel: Lane | None = None  # the lane whose tiles are a team, and meet in sums
    rows: Any = None  # the grid whose rows the blocks of a team share (`halo.Rows`)

    @property
    def tiles(self) -> int:
        return prod(lane.tiles for lane in self.lanes)

    @property
    def vector(self) -> Lane | None:
        """The lane that vectors lie along, if they lie along a lane."""
        return next((lane for lane in self.lanes if lane.vector), None)

    @property
    def buffers(self) -> tuple[list[int], list[int]]:
        """Operands and results, of those that share a buffer the first."""
        count = len(self.loop.body.in_avals)
        first = [i for i in range(len(self.layouts)) if i - 1 not in self.joined]
        return [i for i in first if i < count], [i for i in first if i >= count]

    @property
    def batch_major(self) -> list[int]:
        """Stacked buffers, operands and then results, with time inside the lanes."""
        loop = self.loop
        fixed, count = loop.num_consts + loop.num_carry, len(loop.body.in_avals)
        return [
            i
            for i, order in enumerate(self.layouts)
            if (fixed <= i < count or i >= count + loop.num_carry) and order[0] != 0
        ]

    @property
    def inner_width(self) -> int:
        """Of vectors along inner dimensions of values that lie along no vector lane."""
        return max(self.width, self.common_width)

    def minor(self, shape: tuple[int, ...]) -> int:
        """The dimension that vectors lie along, of a value along no vector lane."""
        return minor_dimension(shape, self.inner_width, self.across)

    def is_laned(self, var: Atom) -> bool:
        """Whether a value differs from one vector lane to the next."""
        return self.vector is not None and self.vector in self.local_lanes(var)

    def local_lanes(self, var: Atom) -> tuple[Lane | None, ...]:
        """For each dimension of a value, the lane axis it lies along."""
        rank = len(var.aval.shape)
        lanes = self.lane_of.get(var, {}) if isinstance(var, Var) else {}
        return tuple(lanes.get(i) for i in range(rank))

    def local_shape(self, var: Atom) -> tuple[int, ...]:
        """The shape of a value inside one tile."""
        return tuple(
            n if lane is None else lane.extent
            for n, lane in zip(var.aval.shape, self.local_lanes(var), strict=True)
        )
