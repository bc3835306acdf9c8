"""choose: lanes, vectors and tiles for a loop, or the reason to leave it.

Two ways to fill SIMD vectors are weighed by counted work: along a lane axis
(each vector position runs its own loop; nothing is ever shuffled), or along the
inner dimensions of each operation.  The other lane axes are cut into tiles that
run on threads.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Var

from onescan.emit.math.features import FP16
from onescan.loop import Atom, Loop, nbytes
from onescan.plan.batch_major import is_in_rows, may_be_batch_major
from onescan.plan.lanes import lane_axes
from onescan.plan.layout import assign, finished, power_below
from onescan.plan.merged import Merged, merged, share, without_repeats
from onescan.plan.plan import INTERLEAVED, Lane, Plan, minor_dimension
from onescan.plan.stencils import is_stencil
from onescan.plan.work import Work, equations, operand_of, step_of
from onescan.primitives import record_of
from onescan.targets.cpu.machine import Machine
from onescan.targets.cpu.products.steps import is_tiled
from onescan.targets.cpu.tiles import (
    ROW_CARRY,
    carry_bytes,
    stacked,
    tile_shape,
)
from onescan.targets.cpu.transposed import is_transposed

#: vector operations of a whole loop (two to four take a nanosecond) from which threads
#: give more than waking them costs
WORTH_THREADS = 500_000
#: the same, with those that xs and ys come and go with: what one core has just written
#: is near that core, and threads that read half of it each wait for it
WORTH_STREAMS = 800_000
#: the part of the work that threads must share to be worth it
ALONE = 0.8


#: vector operations that one element costs which XLA must move to another place
TRANSPOSE = 2.0
#: those that it costs a kernel to turn squares of such elements in registers
TURN = 0.4
#: a second lane axis with at most this many positions is not cut into tiles
FEW = 8
#: the work of a step, as a multiple of what it needs, that tiles may do in all
REPEATED = 1.05
#: vector operations of numbers that a vector has from as many places, on the way there
#: (of a table of 256 columns, rows for a batch of 16 took 8 times as long as by rows)
ONE_BY_ONE = 12.0
#: what loops over inner dimensions cost, next to loops over lanes; products reuse
#: what they load better along inner dimensions, but their results are stored
INNER = 1.05
PRODUCT = 0.7
#: the same where vectors lie across a few numbers, which they take apart and put
#: together again, and no product reuses what it loads
ACROSS = 2.0
#: the same of transforms along the last dimension, which is not that of vectors
TURNED = 1.6
#: positions of a lane axis that a thread needs, to use each weight it loads often
ROWS = 8
#: vector operations of one on numbers of two bytes that are converted to be computed
#: with (`benchmarks/programs.py --only float16`: 1.5 ns on x86, where others take 0.33)
CONVERTED = 4.0


def choose(loop: Loop, machine: Machine) -> Plan:
    """Lay a loop over the machine: a batch of long rows row by row, if that is best."""
    native = machine.vector_bytes // 4
    axes = lane_axes(loop)
    together, by_rows = merged(axes, loop), merged(axes, loop, row=native)
    if len(by_rows) > len(together):
        plan = _laid(loop, by_rows, machine)
        if any(is_in_rows(plan, var) for var in stacked(loop)):
            return plan
    return _laid(loop, together, machine)


def _laid(loop: Loop, axes: list[Merged], machine: Machine) -> Plan:
    native = machine.vector_bytes // 4
    works = [_converted(work, machine) for work in step_of(loop)]
    alone, _ = _cheapest(loop, works, axes, native, helpers=1)
    work = alone * loop.about
    streams = nbytes(loop.x_avals + loop.y_avals, loop.length) / native
    threads = work > WORTH_THREADS or work + streams > WORTH_STREAMS
    helpers = machine.cores if threads else 1
    _, best = _cheapest(loop, works, axes, native, helpers)
    if is_stencil(loop, native, axes, by_rows=True):
        plan = _inner_plan(loop, axes, works, machine, threads, rows=1)
        return replace(plan, stencil=True)
    if best is None:
        return _inner_plan(loop, axes, works, machine, threads)
    return _lane_plan(loop, best, axes, works, machine, threads)


def _converted(work: Work, machine: Machine) -> Work:
    """The same work, with what it takes to compute with numbers of two bytes."""
    dtype = work.eqn.outvars[0].aval.dtype
    half = jnp.issubdtype(dtype, np.floating) and dtype.itemsize == 2
    if not half or record_of(work.eqn).kind != "elementwise":
        return work
    if dtype == np.float16 and FP16 in machine.features:
        return work
    return replace(work, each=work.each * CONVERTED)


def _cheapest(
    loop: Loop, works: list[Work], axes: list[Merged], native: int, helpers: int
) -> tuple[float, Merged | None]:
    """The least vector operations of a step, and the axis (or none) they lie along."""
    best, least = None, _inner_cost(works, axes, native, helpers)
    apart = [v for v in stacked(loop) if may_be_batch_major(loop, v)]
    least += TRANSPOSE * sum(prod(v.aval.shape) for v in apart)
    least += sum(_taken_apart(v, native) for v in stacked(loop) if v not in apart)
    for axis in axes:
        cost = _lane_cost(loop, works, axis, axes, native, helpers)
        if cost < least:
            best, least = axis, cost
    return least, best


def _lane_cost(
    loop: Loop,
    works: list[Work],
    axis: Merged,
    axes: list[Merged],
    native: int,
    helpers: int,
) -> float:
    """Vector operations of a step for one thread, vectors along `axis` of `axes`."""
    others = [other for other in axes if other is not axis and other.size > FEW]
    width = power_below(min(native, axis.size))
    vectors = -(-axis.size // width)
    rounds = -(-vectors // helpers)
    cost = 0.0
    for work in works:
        touched = [*work.eqn.outvars, *work.eqn.invars]
        if any(axis.holds(v) for v in touched):
            cost += _along(work, axis) / axis.size * rounds
        elif any(other.holds(v) for other in others for v in touched):
            cost += work.operations  # along an axis that is cut: one by one
        else:  # the same for every lane: once for each thread
            cost += _along_inner(work, native)
    for var in stacked(loop):
        if axis.holds(var):
            beside = prod(var.aval.shape[axis.parts[-1][var][0] + 1 :])
            moves = 0.0 if beside == 1 else beside / native
            if may_be_batch_major(loop, var):
                moves = TURN
            elif beside > INTERLEAVED:
                moves = TRANSPOSE
            cost += moves * prod(var.aval.shape)
    return cost


def _along(work: Work, axis: Merged) -> float:
    """Operations of an equation, vectors along an axis that it has.

    Rows of a table that are read or set at places are vectors themselves; numbers at as
    many places as a vector has are read or set one by one.
    """
    at_places = record_of(work.eqn).kind in ("gather", "update")
    if not at_places or work.eqn.primitive.name == "dynamic_update_slice":
        return work.operations
    one_by_one = axis.holds(work.eqn.invars[1])
    return _moved(work) * (ONE_BY_ONE if one_by_one else 1.0)


def _moved(work: Work) -> float:
    """Numbers that a step reads from somewhere, or sets there."""
    gathers = record_of(work.eqn).kind == "gather"
    moved: Any = work.eqn.outvars[0] if gathers else work.eqn.invars[2]
    return float(prod(moved.aval.shape) * work.times)


def _taken_apart(var: Atom, native: int) -> float:
    """Vector operations that a stacked value costs whose vectors lie across numbers.

    Half of what it costs where a lane is the vector: other values lie so, too.
    """
    shape = var.aval.shape
    beside = prod(shape[minor_dimension(shape, native, INTERLEAVED) + 1 :])
    return 0.0 if beside == 1 else 0.5 * beside / native * prod(shape)


def _lane_share(works: list[Work], axis: Merged, native: int) -> float:
    """The part of the time of a step that is for what lies along an axis.

    The rest is the same for all lanes: much of it numbers one by one, such as keys.
    """
    laned = common = 0.0
    for work in works:
        if any(axis.holds(v) for v in (*work.eqn.outvars, *work.eqn.invars)):
            laned += work.operations / native
        else:
            common += _along_inner(work, native)
    return laned / max(laned + common, 1e-9)


def _inner_cost(
    works: list[Work], axes: list[Merged], native: int, helpers: int
) -> float:
    """Vector operations of a step, vectors along each operation's last dimension."""
    cost = sum(_along_inner(work, native) for work in works)
    group, pieces = _cut(works, axes, helpers)
    return cost if group is None else cost * (share(works, group) / pieces + 0.1)


def _along_inner(work: Work, native: int) -> float:
    """Vector operations of an equation, vectors along its last dimension."""
    if record_of(work.eqn).kind == "matrix":
        return work.operations  # one by one
    shape = operand_of(work.eqn).aval.shape
    if record_of(work.eqn).kind == "transform":
        turned = work.eqn.params["axis"] == len(shape) - 1
        return work.operations / native * (TURNED if turned else INNER)
    minor = minor_dimension(shape, native, INTERLEAVED)
    if work.eqn.primitive.name == "gather" and shape:
        rows = minor in work.eqn.params["dimension_numbers"].offset_dims
        return _moved(work) * (1.0 if rows else ONE_BY_ONE) / min(native, shape[minor])
    n = shape[minor] if shape else 1
    vectors = len(_widths(n, native)) if n else 1
    each, stored = INNER, 0.0
    if record_of(work.eqn).kind == "product":
        each, stored = PRODUCT, float(work.elements * work.times)
    if minor < len(shape) - 1:
        each = ACROSS
    return (work.operations * each + stored) * vectors / max(n, 1)


def _widths(n: int, width: int) -> list[int]:
    found = []
    while n:
        if n >= width:
            found += [width] * (n // width)
            n %= width
        width //= 2
    return found


def _lane_plan(
    loop: Loop,
    axis: Merged,
    axes: list[Merged],
    works: list[Work],
    machine: Machine,
    threads: bool,
) -> Plan:
    native = machine.vector_bytes // 4
    least = power_below(min(native, axis.size))  # lanes of a tile
    room = machine.l1 * ROW_CARRY
    heavy = carry_bytes(loop, axis.size, axis.holds) * least > room
    candidates = [g for g in axes if g.size > FEW or heavy]
    cut = without_repeats(works, [axis], candidates, REPEATED)
    others = prod(g.size for g in cut[1:])
    helpers = machine.cores if threads and others < machine.cores else 1
    shape = tile_shape(
        loop,
        axis.size,
        axis.holds,
        share=_lane_share(works, axis, native),
        native=native,
        threads=helpers,
        others=others,
        room=room,
    )
    lanes: list[Lane] = []
    lane_of: dict[Var, dict[int, Lane]] = {}
    for group in axes:
        if group is axis:
            lane = Lane(group.size, shape.extent, True, shape.blocks)
            assign(lane_of, lanes, group, lane)
        elif group in cut:  # the others stay whole, and are looped over
            assign(lane_of, lanes, group, Lane(group.size, 1, False))
    plan = finished(loop, lanes, lane_of, 1, threads, None, machine.features, native)
    return replace(plan, l2=machine.l2)


def _inner_plan(
    loop: Loop,
    axes: list[Merged],
    works: list[Work],
    machine: Machine,
    threads: bool,
    rows: int = ROWS,
) -> Plan:
    lanes: list[Lane] = []
    lane_of: dict[Var, dict[int, Lane]] = {}
    group, pieces = _cut(works, axes, machine.cores if threads else 1, rows)
    if group is not None:
        lane = Lane(group.size, group.size // pieces, False)
        assign(lane_of, lanes, group, lane)
    width = _numbers(loop, machine)
    plan = finished(loop, lanes, lane_of, width, threads, features=machine.features)
    return _with_transposed_weights(replace(plan, l2=machine.l2))


def _numbers(loop: Loop, machine: Machine) -> int:
    """How many numbers a vector has: more where all of them are small, in long rows."""
    jaxpr = loop.body.jaxpr
    made = (v for eqn in equations(jaxpr) for v in (*eqn.invars, *eqn.outvars))
    values: list[Any] = [*jaxpr.invars, *jaxpr.outvars, *made]
    arrays = [v.aval for v in values if prod(v.aval.shape) > 1]
    floats = any(jnp.issubdtype(a.dtype, np.inexact) for a in arrays)
    largest = max((a.dtype.itemsize for a in arrays), default=4)
    small = not floats and largest < 4
    usual = machine.vector_bytes // 4
    width = machine.vector_bytes // (largest if small else 4)
    # of those between, vectors would lie elsewhere than usual
    return usual if any(usual <= a.shape[-1] < width for a in arrays) else width


def _with_transposed_weights(plan: Plan) -> Plan:
    """The plan, with matrices that are wanted column by column laid out so."""
    loop, layouts = plan.loop, list(plan.layouts)
    for i, var in enumerate(loop.body.jaxpr.invars[: loop.num_consts]):
        if is_transposed(loop, var, plan.width) and not is_tiled(plan, var):
            layouts[i] = (1, 0)
    return replace(plan, layouts=tuple(layouts))


def _cut(
    works: list[Work], axes: list[Merged], threads: int, rows: int = ROWS
) -> tuple[Merged | None, int]:
    """The lane axis that is cut into pieces for threads, if one is worth it."""
    for group in axes:
        if len(group.parts) > 1 or share(works, group) <= ALONE:
            continue
        most = min(threads, group.size // rows)
        pieces = next((n for n in range(most, 1, -1) if group.size % n == 0), 1)
        if pieces > 1:
            return group, pieces
    return None, 1
