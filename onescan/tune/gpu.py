"""What a step of a loop takes on a GPU, by a block of threads and by XLA's kernels.

Ours follows from the instructions that a thread runs, counted as they were emitted;
XLA's from what it must launch one after the other, since each launch takes longer than
most operations do.  Ours are a fit to the loops of `benchmarks/textbook.py`, their
gradients and 126 random loops on an H200, each with 32, 256 and as many threads as are
planned: predictions are within a factor of two for 95 % of these.  XLA's are a fit to
296 random loops, within a factor of two for 76 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from jax.extend.core import Jaxpr

from onescan import compat
from onescan.loop import Loop, nbytes
from onescan.plan.profile import Instruction, Profile
from onescan.plan.work import ROUNDS, counted_steps, step_of
from onescan.primitives import record_of
from onescan.tune.speed import Speed

DIVISIONS = ("fdiv", "frem")
ROOT, SHUFFLES, TEAM = "sqrt", ("shfl", "mapa"), "cluster"
#: calls that are one instruction like any other
PLAIN = ("fabs", "fma", "fmuladd", "copysign", "maximum", "minimum", "floor", "ceil")
CALLS = ("call", "llvm.")
BRANCHES = ("br", "switch", "phi")
ADDRESSES = ("i64", "i1")
#: how the names begin of factors of complex matrices, whose parts are apart
OF_PARTS = "onescan_"
#: threads that a multiprocessor runs at the same time
TURN = 128


@dataclass(frozen=True)
class GpuCosts:
    """Of one kind of GPU; times in nanoseconds, of our instructions for one thread."""

    name: str
    #: ns of a load or store, of an address, and of another operation
    access: float = 0.5
    address: float = 0.4
    operation: float = 0.7
    #: ns of a division and of a root, which are rounded right by many instructions
    division: float = 40.0
    root: float = 26.0
    #: ns of what another thread of a warp has, and of a call of another kind
    shuffle: float = 16.0
    call: float = 1.8
    #: ns of a branch, and of a barrier of a block, or of a team: one call to arrive
    #: there and one to wait
    branch: float = 5.9
    barrier: float = 95.0
    meeting: float = 180.0
    #: ns of any instruction for each 128 threads of a block, which take turns: no
    #: less, however little each of them would wait; most addresses are optimised away,
    #: and divisions and roots are many instructions
    turn: float = 0.72
    turns_of_address: float = 0.05
    turns_of_division: float = 10.0
    #: ns of a byte of its xs or ys that a block waits for in each step
    streamed_byte: float = 0.03
    #: how much longer everything takes for each further block of a multiprocessor
    sharing: float = 0.3
    #: ns of a step of XLA's loops, of a round of a loop inside it, of a matrix product,
    #: of a gather or an update, and of an operation
    xla_step: float = 9600.0
    xla_round: float = 12500.0
    xla_product: float = 2500.0
    xla_update: float = 150.0
    xla_operation: float = 1e-4
    #: ns of a call of cuSOLVER or cuBLAS for small matrices: 13,000 to 30,000 (H200)
    #: (`benchmarks/linalg.py`)
    xla_matrix: float = 20000.0
    #: ns of a row there, where rows are exchanged (43 us for 16 rows, 102 for 64), of
    #: reflections (116 and 256, in two calls), and of sweeps of rotations or the like
    #: (eigenvalues of 32 rows 455 us and of 64 836, singular values 618 and 1,123)
    xla_pivot: float = 1100.0
    xla_reflection: float = 1500.0
    xla_sweeps: float = 13000.0
    xla_singular: float = 17500.0


HOPPER = GpuCosts("NVIDIA, fitted to an H200")


def predicted(
    loop: Loop,
    profile: Profile,
    blocks: int,
    threads: int,
    cores: int,
    costs: GpuCosts = HOPPER,
) -> Speed:
    """What each engine will take, with so many blocks on so many multiprocessors."""
    shared = 1 + costs.sharing * max(0.0, blocks / cores - 1)
    meeting = turns = waiting = 0.0
    for what, n in profile.runs.items():
        taken = n * _cost(what, costs)
        if "barrier" in what[0]:
            meeting += taken
        else:
            waiting += taken
            turns += n * _turns(what, costs)
    turns *= costs.turn * -(-threads // TURN)
    one = (meeting + max(waiting, turns)) * shared
    streamed = nbytes(loop.x_avals + loop.y_avals) / blocks * costs.streamed_byte
    return Speed(1e-9 * (one / counted_steps(loop) + streamed), by_xla(loop, costs))


def _cost(what: Instruction, costs: GpuCosts) -> float:
    """Nanoseconds of an instruction."""
    name, _ = what
    if name in ("load", "store"):
        return costs.access
    if "barrier" in name:
        return costs.meeting if TEAM in name else costs.barrier
    if name.startswith(CALLS):
        return _call(name, costs)
    if name in BRANCHES:
        return costs.branch
    if name.partition(" ")[0] in DIVISIONS:
        return costs.division
    return costs.address if _is_address(what) else costs.operation


def _call(name: str, costs: GpuCosts) -> float:
    if ROOT in name:
        return costs.root
    if any(word in name for word in SHUFFLES):
        return costs.shuffle
    return costs.operation if any(word in name for word in PLAIN) else costs.call


def _turns(what: Instruction, costs: GpuCosts) -> float:
    """Instructions that one is, in the end."""
    name = what[0]
    if name.partition(" ")[0] in DIVISIONS or ROOT in name:
        return costs.turns_of_division
    return costs.turns_of_address if _is_address(what) else 1.0


def _is_address(what: Instruction) -> bool:
    name, kind = what
    return name == "getelementptr" or kind in ADDRESSES


def by_xla(loop: Loop, costs: GpuCosts = HOPPER) -> float:
    """Seconds of one step of a loop that XLA runs."""
    each = {
        "product": costs.xla_product,
        "transform": costs.xla_product,
        "gather": costs.xla_update,
        "update": costs.xla_update,
        "matrix": costs.xla_matrix,
    }
    row = {
        "lu": costs.xla_pivot,
        **dict.fromkeys(("qr", "geqrf", "ormqr"), costs.xla_reflection),
        "eigh": costs.xla_sweeps,
        "svd": costs.xla_singular,
    }
    taken = costs.xla_step
    for work in step_of(loop):
        name = work.eqn.primitive.name.removeprefix(OF_PARTS)
        calls = work.times * (
            2 if name == "qr" else 1
        )  # reflections, and their product
        taken += calls * each.get(record_of(work.eqn).kind, 0.0)
        if name in row:
            taken += calls * row[name] * min(work.eqn.invars[0].aval.shape[-2:])
        taken += work.operations * costs.xla_operation
    rounds = sum(_rounds(jaxpr) for jaxpr in loop.rounds)
    return 1e-9 * (taken + rounds * costs.xla_round)


def _rounds(jaxpr: Jaxpr) -> int:
    """Rounds of the loops in a body, and branches that are taken."""
    total = 0
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name == "scan":
            inner = compat.loop_of(eqn.params)
            total += inner.length * (1 + _rounds(inner.body.jaxpr))
        elif name == "while":
            total += ROUNDS * (1 + _rounds(eqn.params["body_jaxpr"].jaxpr))
        elif name == "cond":
            inside = [b.jaxpr for b in eqn.params["branches"]]
            total += any(map(_is_work, inside)) + max(map(_rounds, inside))
    return total


def _is_work(jaxpr: Jaxpr) -> bool:
    """Whether a branch is more than what XLA computes in vain and chooses from.

    Three such branches of a step took 0.2 us in all (an H200).
    """
    return not all(record_of(eqn).alone for eqn in jaxpr.eqns)
