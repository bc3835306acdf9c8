"""tiles: how wide vectors are along a lane axis, and how many make a tile.

Two shapes of tile are good.  Where a step reads and writes nothing, a tile is as
many vectors as the registers hold, so that their latencies hide each other and
the carry never leaves a register; where they hold too few for that, a few such
blocks, walked in every step.  Where a step reads xs or writes ys, or does work
that all lanes share, a tile is a long row of vectors, so that memory is read row
by row and shared work is done once for a row.  With several blocks the carry
lives in the L1 cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from jax.extend.core import Var

from onescan.loop import Atom, Loop
from onescan.plan.batch_major import may_be_batch_major
from onescan.plan.layout import power_below
from onescan.plan.work import step_of

#: numbers that the lanes of a vector may hold at once, in SIMD registers: more than
#: the processor has, because a few spills cost less than waiting for latencies
REGISTERS = 64
#: vectors of a tile that keep a processor busy, in a body that is little work: with
#: fewer it would wait for one multiplication after the other
MOST_VECTORS = 16
LITTLE = 8
#: vectors of a tile that keep it busy in every other body: as many as registers hold
#: at a time, the rest in further blocks, which the processor begins before one ends
ENOUGH_VECTORS = 8
#: vectors of a block whose values lie in memory, which share what all lanes read
IN_MEMORY = 4
#: the part of the L1 cache that a row's carry may take, and bytes of its longest
#: row of xs or ys
ROW_CARRY = 0.75
ROW_BYTES = 4 << 10
#: operations for each byte of a carry up to which a step takes as long as its memory
LIGHT = 1
#: the part of the work that lanes do, below which a tile is a long row of them
SHARED = 0.95
#: the part of the work of a step that tiles may do more than once
REPEATED = 0.25
#: lanes of a row whose xs or ys lie apart: the memory of each is a page of its own, and
#: processors look ahead in some 32 of them; with work that lanes share, more
APART, APART_SHARED = 32, 128


@dataclass(frozen=True)
class Shape:
    """Positions of one vector, and vectors of one tile."""

    extent: int
    blocks: int


def tile_shape(
    loop: Loop,
    size: int,
    laned: Any,
    share: float,
    native: int,
    threads: int,
    others: int = 1,
    room: float = ROW_CARRY * (32 << 10),
) -> Shape:
    """The shape of tiles along a lane axis with `size` positions.

    `laned(var)` tells whether a value lies along it; `share` is the part of the time
    for what does, the rest being done by every tile; tiles are made for `threads`
    threads, and are those of one of `others` positions along other axes.  The carry of
    a row has `room` bytes in the L1 cache.
    """
    shared = share < SHARED
    if size < 2 * native:
        width = power_below(min(size, native))
        vectors = -(-size // width)
        return Shape(width, -(-vectors // threads))
    live = pressure(loop, size, laned)
    # what the registers do not hold lies in memory, and each operation loops over it
    most = IN_MEMORY if live > REGISTERS else REGISTERS // max(live, 1)
    carry = carry_bytes(loop, size, laned) / others
    if not (shared or _streams(loop, laned)):
        work = sum(w.operations for w in step_of(loop)) / size
        vectors = MOST_VECTORS if work <= LITTLE else ENOUGH_VECTORS
        multiple = power_below(min(vectors, most, max(1, size // (native * threads))))
        width = native * multiple
        most = min(vectors // multiple, int(room // max(carry, 1)) // width)
        found = Shape(width, _even(-(-size // width), most, threads))
        if -(-size // (width * found.blocks)) <= _most_tiles(share, threads):
            return found
    apart = any(laned(v) and may_be_batch_major(loop, v) for v in stacked(loop))
    # in a row other blocks hide latencies: no more than there are registers for
    most = max(1, 2 * native // max(live, 1))
    if live > REGISTERS:  # these lie in memory, and each operation loops over them
        most = IN_MEMORY
    multiple = power_below(min(2 if apart else 4, most))
    if size <= native * multiple * threads or (size <= native * multiple):
        multiple = power_below(min(multiple, max(1, size // (native * threads))))
    if 0 < carry * native <= room and _is_light(loop, size, carry):
        multiple = min(multiple, power_below(int(room // carry) // native))
    width = native * multiple
    vectors = -(-size // width)
    streams = [v for v in stacked(loop) if laned(v)]
    row = int(room // max(carry, 1))
    if streams:
        row = min(row, ROW_BYTES // max(1, *(_bytes(v, size) for v in streams)))
    if apart:
        row = min(row, APART_SHARED if shared else APART)
    blocks = max(row // width, -(-vectors // _most_tiles(share, threads)))
    blocks = max(1, min(-(-vectors // threads), blocks))
    tiles = -(-vectors // (blocks * threads)) * threads  # as many for each of them
    return Shape(width, -(-vectors // tiles))


def _is_light(loop: Loop, size: int, carry: float) -> bool:
    """Whether a step waits for the memory of its carry, rather than for results."""
    return sum(w.operations for w in step_of(loop)) / size <= LIGHT * carry


def _most_tiles(share: float, threads: int) -> int:
    """Tiles that may each do the work that lanes share, without it being the most."""
    alone = max(1.0 - share, 1e-6)
    return max(threads, int(1 + REPEATED / alone))


def carry_bytes(loop: Loop, size: int, laned: Any) -> int:
    """Bytes of one lane's carry."""
    return sum(_bytes(v, size) for v in _carries(loop) if laned(v))


def _even(blocks: int, most: int, threads: int) -> int:
    """How many blocks a tile has, up to `most`, so that all tiles have as many.

    A block past the end of the axis would do some of its positions again.
    """
    tiles = max(threads, -(-blocks // max(most, 1)))
    return -(-blocks // tiles)


def _bytes(var: Atom, size: int) -> int:
    """Bytes of one lane of a value."""
    return prod(var.aval.shape) // size * var.aval.dtype.itemsize


def _carries(loop: Loop) -> list[Any]:
    invars = loop.body.jaxpr.invars
    return invars[loop.num_consts : loop.num_consts + loop.num_carry]


def stacked(loop: Loop) -> list[Any]:
    """What a step reads of xs and writes of ys."""
    jaxpr = loop.body.jaxpr
    xs = jaxpr.invars[loop.num_consts + loop.num_carry :]
    return [*xs, *jaxpr.outvars[loop.num_carry :]]


def _streams(loop: Loop, laned: Any) -> bool:
    return any(laned(v) for v in stacked(loop))


def pressure(loop: Loop, size: int, laned: Any) -> int:
    """The most numbers one lane holds at any point of the body."""
    jaxpr, *_ = loop.rounds
    last: dict[Var, int] = {}
    for k, eqn in enumerate(jaxpr.eqns):
        last.update((v, k) for v in eqn.invars if isinstance(v, Var))
    end = len(jaxpr.eqns)
    last.update((v, end) for v in jaxpr.outvars if isinstance(v, Var))
    weigh = lambda v: prod(v.aval.shape) // size if laned(v) else 0
    held = sum(weigh(v) for v in _carries(loop))
    most = held
    for k, eqn in enumerate(jaxpr.eqns):
        held += sum(weigh(v) for v in eqn.outvars if v in last)
        most = max(most, held)
        ended = {v for v in eqn.invars if isinstance(v, Var) and last[v] == k}
        held -= sum(weigh(v) for v in ended)
    return most
