"""Cumulative operations by the threads of a block.

Where there are fewer rows than threads, all positions of a row are worked on together:
in each of log2(n) passes, every position takes in what stands twice as far away as in
the pass before (Hillis and Steele).
"""

from __future__ import annotations

from math import prod

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.cumulative import CUMULATIVE
from onescan.emit.cumulative import cumulative as by_one_thread
from onescan.loop import Equation
from onescan.targets.nvidia.block_emitter import BlockEmitter

#: positions from which on passes, with a barrier each, are faster than one thread
FEWEST = 32


def cumulative(e: BlockEmitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    axis, reverse = eqn.params["axis"], eqn.params["reverse"]
    n = x.shape[axis]
    own = e.apart or e.team > 1 or prod(x.shape) >= n * e.threads
    if own or n < FEWEST or x.dtype in ty.HALVES:
        return by_one_thread(e, eqn, operands)
    combine = CUMULATIVE[eqn.primitive.name]
    target = e.fresh(out)
    memory = e.scratch(target.shape, target.lanes, x.dtype)
    other = e.stored(memory, target.shape, target.lanes)

    def take_in(source: Array, into: Array, distance: int) -> None:
        memory = into.memory
        assert memory is not None

        def visit(index: tuple[Index, ...]) -> None:
            b, at = e.b, index[axis]
            here = ir.Constant(ty.I64, at) if isinstance(at, int) else at
            move = b.add if reverse else b.sub
            far = move(here, ir.Constant(ty.I64, distance))
            inside = b.icmp_unsigned("<", far, ir.Constant(ty.I64, n))
            place = b.select(inside, far, here)
            before = source.at((*index[:axis], place, *index[axis + 1 :]))
            value = source.at(index)
            total = combine(b, x.dtype, before, value)
            memory.store(b, index, b.select(inside, total, value))

        e.nest(target.shape, target.lanes, visit)

    passes = (n - 1).bit_length()
    source = e.once(x)
    for k in range(passes):
        into = target if (passes - k) % 2 else other
        take_in(source, into, 1 << k)
        source = into
    return [target]


RULES = dict.fromkeys(CUMULATIVE, cumulative)
