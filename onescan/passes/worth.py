"""What is worth taking out of a loop, and how to say what was taken.

A native kernel does small products without touching memory, so a value that
leaves the loop (written for every step, read again for every step) must save far
more work than it costs in traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, log2, prod
from typing import Any, Literal

from jax.extend.core import JaxprEqn

from onescan import compat
from onescan.loop import Equation
from onescan.plan.work import work_in
from onescan.primitives import FREE, named, record_of

#: multiply-adds of one step from which a matrix product is worth moving
HEAVY = 8192
#: multiply-adds of one step from which an accumulated product is: in the loop it
#: would also read and write the whole accumulator
HEAVY_SUM = 1024
#: operations a moved value must save for each element that waits in memory
PER_ELEMENT = 4
#: multiply-adds for each element of its result, which waits in memory, from which a
#: product of a kernel on a CPU is: fewer take less time than storing and loading it
PER_RESULT = 32

#: multiply-adds for each element read or written from which a product of one step
#: keeps a CPU busy by itself
BUSY = 32
#: multiply-adds from which a product does of which both operands change: all steps
#: together are a batch of products (layers with `jax.checkpoint`, taken apart for
#: products of 4 million, ran at 0.9 of stock's speed)
BUSY_BATCH = 500_000
#: steps from which such a batch is worth it: of 6 it takes 0.8 to 1.4 times as long as
#: a loop, of 32 the half to as long, of 200 a third to the half (two x86 cores), and
#: what leaves a loop costs some 10 us itself (gradients of six layers ran at 0.7)
STEPS_OF_BATCH = 64

#: numbers drawn in one step from which they fill the vectors of a CPU by themselves:
#: its kernels then draw them as fast in the loop as anything could outside
FILLS_A_VECTOR = 16
#: steps from which few draws of each fill a vector, when one of `ROWS` rows has them
FILLED_BY_STEPS = 64
#: numbers drawn in one step from which XLA's kernels fill a GPU by themselves: to keep
#: those of all steps takes longer (on an H200, 260,000 of each of 62 steps 1.4x, 65,000
#: of each of 250 steps 0.65x)
FILLS_A_GPU = 1 << 17
#: kinds of operations that are all told of, and the share of the work of more of them
#: below which one is counted only
FEW_KINDS, SMALL = 3, 0.1
#: numbers that a reduction takes as one, from which it does better for all steps at
#: once on a GPU: a step waits for the threads that share it, or each does it again
LONG_SUM = 64
#: which draws of random bits do better for all steps at once
Draws = Literal["few", "small", "all"]

#: steps from which a linear recurrence is worth solving in chunks, and lanes up to
#: which it is: on an H200, 4096 steps of 1 to 1024 lanes take half the time in chunks,
#: though their ten to twenty kernels take as long to launch as one does to run; 2048
#: steps or 4096 lanes take longer
LONG = 4096
FEW_LANES = 1024


def operations(eqn: Equation) -> float:
    """Operations of an equation in one step."""
    return sum(work.operations for work in work_in(eqn))


def elements(atoms: Iterable[Any]) -> int:
    return sum(prod(v.aval.shape) for v in atoms)


def is_view(eqn: Equation) -> bool:
    """Whether an equation only shows its operand differently, and all of it."""
    return eqn.primitive.name in FREE and elements(eqn.invars) <= elements(eqn.outvars)


def is_movable(eqn: Equation) -> bool:
    """Whether an equation may run outside of the loop, for all steps at once."""
    return record_of(eqn).movable and not eqn.effects


def is_heavy(eqn: Equation, least: float | None = None) -> bool:
    """Whether an equation does better for all steps at once.

    Of a product, if that saves so many operations for each element of its result.
    """
    kind = record_of(eqn).kind
    if kind == "product":
        work = operations(eqn)
        return work >= HEAVY and pays(work, eqn.outvars, least)
    return kind == "library" or (kind == "matrix" and _is_refused(eqn))


def is_long_sum(eqn: Equation) -> bool:
    """Whether an equation makes one of many numbers."""
    many = elements(eqn.invars) >= LONG_SUM * elements(eqn.outvars)
    return record_of(eqn).kind == "reduction" and many


def _is_refused(eqn: Equation) -> bool:
    """Whether no kernel takes an equation, or only one whose threads share it."""
    record = record_of(eqn)
    return any(r and r(eqn) for r in (record.refuses, record.refuses_alone))


def is_draw(eqn: Equation, draws: Draws = "all", steps: int = 0) -> bool:
    """Whether an equation draws random bits that do better for all steps at once."""
    if eqn.primitive.name != "threefry2x32":
        return False
    drawn = elements(eqn.outvars[:1])
    if draws == "small":
        return drawn < FILLS_A_GPU
    return draws == "all" or (drawn < FILLS_A_VECTOR and steps >= FILLED_BY_STEPS)


def keeps_busy(eqn: Equation) -> bool:
    """Whether XLA does as well, on a CPU, with one step of this at a time."""
    touched = elements([*eqn.invars, *eqn.outvars])
    return record_of(eqn).kind == "product" and operations(eqn) >= BUSY * touched


def largest_of_batch(steps: int, batches: bool) -> float:
    """Multiply-adds up to which a product whose operands both change leaves a loop."""
    if batches:
        return inf
    return BUSY_BATCH if steps >= STEPS_OF_BATCH else 0.0


def pays(saved: float, left: Iterable[Any], least: float | None = None) -> bool:
    """Whether so many operations are worth leaving these values behind."""
    return saved >= (PER_ELEMENT if least is None else least) * elements(left)


def pays_to_sum(saved: float, left: Iterable[Any]) -> bool:
    """The same for an accumulator."""
    return saved >= HEAVY_SUM and pays(saved, left)


def pays_in_chunks(length: int, lanes: int) -> int:
    """Chunks of time for which a linear recurrence is worth solving in parallel.

    On a device with far more threads than lanes.  As many chunks as a chunk has
    steps take the least time; 0 where step by step is as good.
    """
    if length < LONG or lanes > FEW_LANES:
        return 0
    return 1 << round(log2(length) / 2)


def described(verb: str, eqns: Sequence[JaxprEqn], end: str) -> list[str]:
    """ "hoisted 1 matrix product (x @ W, rnn.py:31) over 1000 steps", by kind.

    Of many kinds those that take most of the time have a note each, the others are
    counted: "computed 1 `pow` (c**2.5, vfi.py:10) and 24 smaller operations once".
    """
    kinds: dict[str, list[JaxprEqn]] = {}
    for eqn in eqns:
        kinds.setdefault(eqn.primitive.name, []).append(eqn)
    work = {name: sum(map(operations, some)) for name, some in kinds.items()}
    least = 0.0
    if len(kinds) > FEW_KINDS:
        least = min(SMALL * sum(work.values()), max(work.values()))
    told = [name for name in kinds if work[name] >= least]
    rest = sum(len(some) for name, some in kinds.items() if name not in told)
    notes = []
    for name in told:
        count, also = len(kinds[name]), ""
        if rest and name == told[-1]:
            also = f" and {rest} smaller operation{'s' * (rest > 1)}"
        one, many = named(name).words or (f"`{name}`", f"`{name}`")
        places = dict.fromkeys(map(compat.expression_of, kinds[name]))
        what = one if count == 1 else many
        notes.append(f"{verb} {count} {what} ({'; '.join(places)}){also} {end}")
    return notes
