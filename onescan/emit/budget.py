"""How long the code of a kernel may be: LLVM's time grows with it, XLA's does not.

XLA compiles a loop in a time that grows with the equations of its body, whatever their
shapes.  A kernel may have so many instructions that LLVM takes no longer than that.
"""

from __future__ import annotations

from typing import Any

from onescan.loop import LeaveToXla, Loop
from onescan.plan.work import equations

#: instructions that a kernel may have at least, and for each equation of the body
#: (`benchmarks/compile_time.py` prints what either costs)
LEAST = 6000
EACH = 40
#: the same on a GPU, where loops of a thread are written out: twice what the longest
#: kernel of `make bench-gpu` has
LEAST_ON_GPU = 24_000
#: instructions that take some 10 ms to emit
LONG = 600


def instructions(module: Any) -> int:
    """Instructions of a module, before LLVM has seen it."""
    return sum(len(block.instructions) for f in module.functions for block in f.blocks)


def is_long(module: Any) -> bool:
    """Whether it took long to emit."""
    return instructions(module) > LONG


class TooLong(LeaveToXla):
    """A kernel that takes longer to compile than XLA's loop."""


def longest(loop: Loop, on_gpu: bool = False) -> int:
    """Instructions that the kernel of a loop may have.

    That is of the equations as they were before they were rewritten for kernels.
    """
    least = LEAST_ON_GPU if on_gpu else LEAST
    body = (loop.plain or loop).body.jaxpr
    return least + EACH * sum(1 for _ in equations(body))


def too_long(longest: float) -> TooLong:
    """What a kernel is of more instructions than this."""
    return TooLong(
        f"its kernel would have more than {longest:,} instructions, and compiling "
        "them takes longer than XLA takes for the whole loop"
    )


def require_short(written: int, longest: float) -> None:
    """Raise `TooLong` where so many instructions are too many."""
    if written > longest:
        raise too_long(longest)
