"""predict: seconds of one step (a round of a while loop), by our kernel and by XLA.

Ours follow from the instructions of the kernel, counted as they were emitted.  XLA's
follow from the operations of the body and how many equations it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any

from onescan.loop import Loop, nbytes
from onescan.plan.parts_read import parts_read
from onescan.plan.profile import Instruction, Profile
from onescan.plan.work import Work, counted_steps, step_of
from onescan.primitives import record_of
from onescan.tune.costs import Costs
from onescan.tune.speed import Speed

VECTOR = re.compile(r"<(\d+) x (\w+)>")
BITS = {"double": 64, "i64": 64, "ptr": 64, "i16": 16, "i8": 8}
DIVISIONS = ("fdiv", "frem", "llvm.sqrt")
#: operations that a division by a constant becomes
MULTIPLIED = 5
INTEGER_DIVISIONS = ("sdiv", "udiv", "srem", "urem")
MOVES = ("insertelement", "extractelement")
GATHER = "llvm.masked"
#: the share of addresses that LLVM leaves in the loop they are written in
LEFT_IN_LOOPS = 0.5
#: kinds of primitives that XLA gives to a library, or computes by a call of their own
APART = ("library", "matrix", "sort", "transform")
#: numbers of an array for each core that XLA gives a part of it
DIVIDED = 32768


def predicted(
    loop: Loop, profile: Profile, cores: int, costs: Costs, turned: int = 0
) -> Speed:
    """What each engine will take on a CPU.

    XLA's loop has so many numbers `turned` for each step, which a kernel takes as they
    lie.
    """
    xla = by_xla(loop, cores, costs) + 1e-9 * turned * costs.xla_turned
    return Speed(_native(loop, profile, cores, costs), xla)


def _native(loop: Loop, profile: Profile, cores: int, costs: Costs) -> float:
    one = sum(n * _cost(what, costs) for what, n in _joined(profile.runs).items())
    helpers = min(cores, profile.tiles) if profile.threads else 1
    rounds = -(-profile.tiles // helpers)
    streamed = nbytes(loop.x_avals + loop.y_avals) + loop.converted
    streams = streamed * costs.streamed_byte
    computing = one * rounds * costs.waiting / counted_steps(loop)
    return 1e-9 * (computing + streams)


def _joined(runs: Mapping[Instruction, float]) -> dict[Instruction, float]:
    """How often instructions run, those counted once that the processor has as one.

    A product that is added to something is one with the sum; a number that is read and
    spread over a vector is spread as it is read.
    """
    left = dict(runs)
    for (name, kind), count in runs.items():
        if name == "fmul":
            sums = sum(runs.get((sum_, kind), 0.0) for sum_ in ("fadd", "fsub"))
            left[name, kind] -= min(count, sums)
        elif name == "shufflevector" and (match := VECTOR.match(kind)):
            spread = min(count, runs.get(("insertelement", kind), 0.0))
            if spread:
                left["insertelement", kind] -= spread
                left[name, kind] -= min(spread, runs.get(("load", match[2]), 0.0))
    return left


@lru_cache(maxsize=4096)
def _cost(what: Instruction, costs: Costs) -> float:
    """Nanoseconds of an instruction."""
    name, kind = what
    match = VECTOR.match(kind)
    count, element = (int(match[1]), match[2]) if match else (1, kind)
    bits = count * BITS.get(element, 32)
    registers = max(1, -(-bits // costs.vector_bits))
    if name == "getelementptr" or (count == 1 and element in ("i64", "ptr", "i1", "")):
        return costs.address * LEFT_IN_LOOPS
    if name.endswith(" by a constant"):
        return costs.operation * MULTIPLIED * registers
    if name in INTEGER_DIVISIONS:
        return costs.integer_division * count
    if name in DIVISIONS:
        return costs.division * registers
    if name in MOVES:
        return costs.element
    if name == GATHER:
        return (costs.load + costs.element) * count
    if name == "load":
        return costs.load * registers
    if name in ("store", "cell"):
        return costs.store * registers
    return costs.operation * registers


def by_xla(loop: Loop, cores: int, costs: Costs) -> float:
    """Seconds of one step of a loop that XLA runs."""
    operations = equations = products = matrices = 0.0
    fastest = costs.operation / (costs.vector_bits // 32) / cores
    shares: dict[Any, float] = {}  # of what XLA computes in part
    for jaxpr in loop.rounds:
        shares |= parts_read(jaxpr)
    for work in step_of(loop):
        if _is_of_bytes(work):
            larger = max(prod(v.aval.shape) for v in work.eqn.invars)
            each = work.operations * costs.xla_bytes_operation
            products += each + work.times * larger * costs.xla_byte
        elif _is_product(work, costs.xla_library):
            products += work.operations * fastest
        elif _is_product(work, costs.xla_product):
            products += work.operations * costs.xla_product_operation
        elif record_of(work.eqn).kind == "matrix":
            matrices += _by_a_library(work, costs)
        elif record_of(work.eqn).kind == "transform":
            each = work.operations * costs.xla_transform_operation
            matrices += work.times * costs.xla_transform + each
        else:
            share = shares.get(work.eqn.outvars[0], 1.0)
            operations += share * work.operations / _helpers(work, cores)
        equations += work.times if work.each else 0
    streams = nbytes(loop.x_avals + loop.y_avals) * costs.streamed_byte
    if is_one_of_xla(loop, costs):
        fixed = costs.xla_small_step + costs.xla_small_equation * equations
    else:
        fixed = costs.xla_step + costs.xla_equation * equations
    computing = operations * costs.xla_operation + products
    return 1e-9 * (computing + matrices + fixed + streams)


def is_one_of_xla(loop: Loop, costs: Costs) -> bool:
    """Whether XLA makes one kernel of a loop, and of all loops inside."""
    small = nbytes(loop.carry_avals) <= costs.xla_small
    return small and not any(map(_is_apart, step_of(loop)))


def _is_apart(work: Work) -> bool:
    """Whether XLA makes no kernel of a loop with this in it, small as it may be."""
    drawn = work.eqn.primitive.name == "threefry2x32"
    return drawn or record_of(work.eqn).kind in APART


def _helpers(work: Work, cores: int) -> int:
    """Cores among which XLA divides an operation: a large one, by what it reads."""
    widest = max((prod(v.aval.shape) for v in work.eqn.invars), default=1)
    return min(cores, max(1, widest // DIVIDED))


def _by_a_library(work: Work, costs: Costs) -> float:
    """Nanoseconds of matrices that are given to a library one by one."""
    *batch, _, _ = (1, *work.eqn.invars[0].aval.shape)
    each = work.operations * costs.xla_matrix_operation
    return work.times * prod(batch) * costs.xla_matrix + each


def _is_of_bytes(work: Work) -> bool:
    """Whether it is a product of integers of one byte, for which XLA has a library."""
    if record_of(work.eqn).kind != "product":
        return False
    return all(
        v.aval.dtype.kind in "iu" and v.aval.dtype.itemsize == 1
        for v in work.eqn.invars
    )


def _is_product(work: Work, least: float) -> bool:
    """Whether it is a product of so many multiply-adds."""
    large = work.elements * work.each >= least
    return large and record_of(work.eqn).kind == "product"
