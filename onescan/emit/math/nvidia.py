"""Instructions of NVIDIA's GPUs that other processors have none for.

They are approximations, good to a unit or two in the last place, and take as long as
four multiplications.  They take subnormal numbers for zeros, and give none.
"""

from __future__ import annotations

from llvmlite import ir

from onescan.emit.math.features import GPU, has
from onescan.emit.math.nvvm import function_of
from onescan.emit.math.types import SINGLE, Lane


def usable(x: Lane) -> bool:
    """Whether these instructions are there for a value."""
    return x.format == SINGLE and has(x.b, GPU)


def about_two_to(x: Lane) -> Lane:
    """2**x, of which not even the argument is reduced."""
    return _instruction("ex2.approx.ftz.f", x)


def about_one_over(x: Lane) -> Lane:
    """1 / x."""
    return _instruction("rcp.approx.ftz.f", x)


def _instruction(name: str, x: Lane) -> Lane:
    kind = ir.FunctionType(x.type, [x.type])
    function = function_of(x.b.module, f"llvm.nvvm.{name}", kind)
    return Lane(x.b, x.b.call(function, [x.ir]))
