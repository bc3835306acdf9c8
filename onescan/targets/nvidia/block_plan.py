"""A loop over the blocks of a GPU: whose threads share a tile, or teams of whose do.

A block has some lanes, and does for itself what all lanes have in common.  A step that
is long for one block is divided further, as far as the chip has blocks to spare: along
lanes that were left together, because each block would repeat what they share, and
along axes on which only sums meet, by teams of blocks that add up.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from math import prod
from typing import Any

from jax.extend.core import Literal, Var

from onescan.loop import LeaveToXla, Loop
from onescan.naming import millions
from onescan.plan.layout import assign, finished, power_below
from onescan.plan.merged import Merged
from onescan.plan.plan import Grid, Lane, Plan
from onescan.plan.work import Work
from onescan.primitives import record_of
from onescan.targets.nvidia.machine import Chip
from onescan.targets.nvidia.shared_out import SharedOut, shared_out
from onescan.targets.nvidia.shares import unit_of

WARP = 32
#: threads that a block can have, and the weights each of them can keep
SIZES = {32: 198, 64: 198, 128: 198, 256: 198, 384: 114, 512: 72, 768: 29, 1024: 8}
#: the compute capability from which blocks can work together, and how many times the
#: weights that registers hold one block may have: shared memory holds some too
CLUSTERS, SPILLED = 90, 1.5
#: the share of the chip that teams can use at the same time, for certain
SIDE_BY_SIDE = 2 / 3
#: operations that a thread of a block should have in the largest operation of a step
EACH = 24
#: the same of a block that shares a step with others, where all of them wait for it
EACH_OF_TEAM = 4
#: operations of a number that is read and written, and nothing else
MOVED = 4
#: operations of all that is computed element by element for each thread of a block that
#: has a multiprocessor for itself, and elements of the largest of them for 512 threads:
#: waiting for each other takes such threads 20 ns (40 loops of `benchmarks/textbook.py`
#: and their gradients with 32 to 512 threads, an H200)
EACH_ALONE = 8
MANY = 2048
#: what is a little more than a power of two is done by so many threads
ROUNDED = 4 / 3
#: weights with which two blocks fit into one multiprocessor, or four smaller ones
LIGHT, LIGHTER = 16384, 8192
#: threads of each of so many blocks
BESIDE = {1: 256, 2: 256, 4: 128}
#: threads of one that shares it with none, from so many operations on in the largest
#: of a step (of 12 loops on an H200 all with fewer are slower with so many threads)
MORE = {512: 80_000, 1024: 260_000}
#: lanes that one block does at most
ROWS = 32
#: operations of one step of one tile from which XLA's many kernels are as good, and
#: what one with a weight in a register counts
LARGE, IN_REGISTERS = 1_000_000, 0.25
#: the part of a tile's work that must go elsewhere for it to be divided further
WORTH = 0.3


class _Laid:
    """The lanes of a plan in the making, and the operations of one of its tiles."""

    def __init__(self, works: list[Work], products: dict[int, int]) -> None:
        self.lanes: list[Lane] = []
        self.lane_of: dict[Var, dict[int, Lane]] = {}
        self.works = works
        self.steady = products
        self.operations = {id(w.eqn): w.operations for w in works}

    def along(self, axis: Merged, extent: int, everything: bool = False) -> Lane:
        """Cut an axis; where that is a part of nearly `everything`, of all of it."""
        lane = Lane(axis.size, extent, False)
        assign(self.lane_of, self.lanes, axis, lane)
        for work in self.works:
            held = [*work.eqn.outvars, *work.eqn.invars]
            if everything or any(axis.holds(v) for v in held):
                self.operations[id(work.eqn)] *= extent / axis.size
        return lane

    def work_along(self, axis: Merged) -> float:
        """The part of a tile's work that lies along an axis."""
        weighed = self.weighed
        along = sum(
            weighed.get(id(w.eqn), 0.0)
            for w in self.works
            if any(axis.holds(v) for v in [*w.eqn.outvars, *w.eqn.invars])
        )
        return along / max(sum(weighed.values()), 1.0)

    def moved(self, loop: Loop) -> float:
        """Numbers of the largest result of a tile that nothing is computed for."""
        jaxpr: Any = loop.body.jaxpr
        made = [eqn for eqn in jaxpr.eqns if record_of(eqn).moves]
        there = {v for eqn in made for v in eqn.outvars}.union(jaxpr.invars)
        before = jaxpr.invars[loop.num_consts :]
        outs = zip_longest(jaxpr.outvars, before[: loop.num_carry])
        moved = [
            v for v, old in outs if v is not old and isinstance(v, Var) and v in there
        ]
        return max(map(self._elements, moved), default=0.0)

    def alone(self) -> tuple[float, float]:
        """The most results of a tile that are computed one by one; their operations."""
        most = total = 0.0
        for work in self.works:
            done = self.operations[id(work.eqn)]
            if done and record_of(work.eqn).alone:
                most = max(most, done / (work.each * work.times))
                total += done
        return most, total

    def _elements(self, var: Any) -> float:
        lanes = self.lane_of.get(var, {}).values()
        return prod(var.aval.shape) * prod(lane.extent / lane.size for lane in lanes)

    @property
    def tiles(self) -> int:
        return prod(lane.tiles for lane in self.lanes)

    @property
    def weighed(self) -> dict[int, float]:
        """By equation, operations of a tile; with weights in registers, fast ones."""
        return {
            id(w.eqn): self.operations[id(w.eqn)]
            * (IN_REGISTERS if id(w.eqn) in self.steady else 1)
            for w in self.works
            if record_of(w.eqn).kind != "matrix"  # XLA's libraries wait for columns too
        }


def block_plan(
    loop: Loop,
    works: list[Work],
    axes: list[Merged],
    others: list[Merged],
    chip: Chip,
    most: int,
    easily: bool = False,
) -> Plan:
    """Lay a loop over blocks, each with at most so many lanes of `axes`.

    Of `others`, lanes with much in common, a block has as many as need be.  Blocks
    share an axis where that takes much less time, or `easily`.
    """
    products = _steady_products(loop)
    weights = sum(products.values())
    team = _team(weights, chip)
    count = prod(axis.size for axis in axes)
    largest = max((w.operations for w in works), default=0.0) / count
    blocks = _blocks(weights, count, largest, chip)
    room = blocks * chip.cores // team
    if team > 1:  # its blocks must lie side by side on the chip, which wastes some
        room = max(1, int(room * SIDE_BY_SIDE))
    rows = min(most, -(-count // room))
    laid = _Laid(works, products)
    for k, axis in enumerate(axes):
        extent = rows if k == len(axes) - 1 and len(axis.parts) == 1 else 1
        laid.along(axis, min(extent, axis.size), everything=True)
    parallel, part = None, None
    if team == 1:
        _divide(laid, others, chip, most)
        parallel = _parallel(loop, laid, chip, easily)
    total = sum(laid.weighed.values()) / team
    if parallel is not None:
        team, total = parallel.team, parallel.operations
        part = laid.along(parallel.axis, parallel.axis.size // team)
    if total > LARGE:
        raise LeaveToXla(
            f"each step has {millions(total)} operations for a block of "
            "GPU threads, which XLA's own kernels spread better"
        )
    kept = weights if parallel else weights // team
    largest = max(*laid.operations.values(), MOVED * laid.moved(loop), 0.0)
    each = EACH_OF_TEAM if parallel else EACH
    wanted = largest / each
    alone = laid.tiles <= chip.cores and (parallel or team == 1)
    if alone and not parallel:
        elements, operations = laid.alone()
        wanted = max(wanted, min(elements * ROUNDED, operations / EACH_ALONE))
    threads = _threads(kept, wanted, BESIDE[blocks])
    if alone:
        threads = max(threads, _more_threads(weights, laid, parallel is None))
    unit = 0
    if parallel is None:
        unit = unit_of(loop, team, lambda v, i: i in laid.lane_of.get(v, {}))
    grid = Grid(threads, together=True, team=team, unit=unit)
    plan = finished(loop, laid.lanes, laid.lane_of, 1, False, grid)
    return replace(plan, parallel=part)


def _divide(laid: _Laid, others: list[Merged], chip: Chip, most: int) -> None:
    """Cut lanes that have much in common into a tile for each block that is free.

    What they have in common all of these do at the same time.
    """
    free = chip.cores // laid.tiles
    whole = [axis for axis in others if len(axis.parts) == 1]
    if free < 2 or not whole:
        return
    axis = max(whole, key=laid.work_along)
    extent = min(most, -(-axis.size // free))
    if laid.work_along(axis) * (1 - extent / axis.size) >= WORTH:
        laid.along(axis, extent)


def _parallel(loop: Loop, laid: _Laid, chip: Chip, easily: bool) -> SharedOut | None:
    """An axis on which only sums meet, for teams of as many blocks as are free."""
    if chip.capability < CLUSTERS:
        return None
    free = int(chip.cores * SIDE_BY_SIDE) // laid.tiles
    return shared_out(loop, laid.weighed, free, easily)


def _team(weights: int, chip: Chip) -> int:
    """Blocks that it takes to keep the weights."""
    most = max(n * each for n, each in SIZES.items())
    sizes = (2, 4, 8) if chip.capability >= CLUSTERS else ()
    if weights <= most * SPILLED or not sizes:
        return 1
    return next((n for n in sizes if weights <= n * most), sizes[-1])


def _blocks(weights: int, lanes: int, largest: float, chip: Chip) -> int:
    """Blocks of a multiprocessor, which hide each other's latencies.

    Each of them keeps the weights, and has lanes of its own, of whose steps the
    largest operation should be work for all of its threads.
    """
    each = -(-lanes // (4 * chip.cores))
    enough = lanes >= 4 * chip.cores and each * largest >= BESIDE[4] * EACH
    if 0 < weights <= LIGHTER and enough:
        return 4
    return 2 if weights <= LIGHT else 1


def _threads(weights: int, wanted: float, most: int = 256) -> int:
    """Threads of a block: enough to keep the weights, and not many more than wanted."""
    enough = [n for n, each in SIZES.items() if n * each >= weights]
    few = min(most, max(WARP, power_below(int(wanted))))
    if not enough:  # the rest goes to shared memory
        return 512
    return max(enough[0], few)


def _more_threads(weights: int, laid: _Laid, by_itself: bool) -> int:
    """Threads of a block that has a multiprocessor for itself, if it needs many."""
    others = (n for eqn, n in laid.operations.items() if eqn not in laid.steady)
    largest = max(others, default=0.0)
    enough = {n for n in MORE if largest >= MORE[n]}
    if by_itself and laid.alone()[0] >= MANY:
        enough.add(min(MORE))
    return max((n for n in enough if n * SIZES[n] >= weights), default=0)


def _steady_products(loop: Loop) -> dict[int, int]:
    """The products with an operand that is the same in every step, and its size."""
    jaxpr: Any = loop.body.jaxpr
    steady: set[Any] = set(jaxpr.invars[: loop.num_consts])
    for eqn in jaxpr.eqns:
        inputs = [v for v in eqn.invars if isinstance(v, Var)]
        if inputs and steady.issuperset(inputs):
            steady.update(eqn.outvars)
    sizes = {
        id(eqn): sum(
            prod(v.aval.shape)
            for v in eqn.invars
            if not isinstance(v, Literal) and v in steady
        )
        for eqn in jaxpr.eqns
        if record_of(eqn).kind == "product"
    }
    return {eqn: size for eqn, size in sizes.items() if size}
