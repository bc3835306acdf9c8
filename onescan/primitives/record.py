"""`Primitive`: everything the compiler knows about one primitive but how it is emitted.

How it is emitted stands in `onescan/emit`, in a table with the same names: passes and
plans are made where there is no LLVM.  A test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from onescan.loop import Equation

Kind = Literal[
    "elementwise",  # each element from the elements at the same place of the operands
    "identity",  # its operand, as far as a kernel is concerned
    "view",  # its operand, shown differently
    "source",  # from nothing
    "joined",  # several operands beside each other
    "reduction",
    "cumulative",
    "across",  # a question to all lanes that run together
    "product",
    "sort",
    "gather",
    "update",  # its first operand, changed in some places
    "control",  # with a body of its own
    "matrix",  # factors or solutions of matrices, one by one
    "transform",  # of Fourier's, along an axis
    "library",  # given to a library by JAX: no kernel has it
    "unknown",
]
#: an equation, and the axes that it joins and strikes
AxesRule = Callable[[Equation, Any], None]
#: elements that an equation computes, and operations of each
Work = Callable[[Equation], tuple[int, float]]
#: why a kernel does not take an equation
Refusal = Callable[[Equation], str | None]


def results(eqn: Equation) -> int:
    """Elements of all results."""
    return sum(prod(v.aval.shape) for v in eqn.outvars)


def strike_all(eqn: Equation, axes: Any) -> None:
    """Every position may depend on every other."""
    for var in [*eqn.invars, *eqn.outvars]:
        for i in range(len(var.aval.shape)):
            axes.strike(var, i)


@dataclass(frozen=True, kw_only=True)
class Primitive:
    name: str
    kind: Kind
    #: operations of one element; 0 where it disappears into its neighbours
    cost: int = 1
    #: which dimensions walk together, and which mix their positions
    axes: AxesRule = strike_all
    #: what it does, where that is not `cost` for each element
    work: Work | None = None
    #: what a kernel does not take of it
    refuses: Refusal | None = None
    #: what it does not take either where one thread has all of a matrix
    refuses_alone: Refusal | None = None
    #: whether it is linear in all its operands together
    linear: bool = False
    #: whether its results are not rounded
    exact: bool = False
    #: whether it costs less than reading its result from memory
    light: bool = False
    #: what an accumulator that it renews collects
    collects: str | None = None
    #: what people call it, one and several
    words: tuple[str, str] | None = None

    def done(self, eqn: Equation) -> tuple[int, float]:
        """Elements that an equation computes, and operations of each."""
        if self.work is not None:
            return self.work(eqn)
        if self.moves:
            return results(eqn), 0.0
        return results(eqn), float(max(self.cost, 1))

    @property
    def moves(self) -> bool:
        """Whether it computes nothing: its elements are there, or made of nothing."""
        return self.kind in ("view", "source", "identity")

    @property
    def alone(self) -> bool:
        """Whether each element is given by itself."""
        return self.moves or self.kind == "elementwise"

    @property
    def movable(self) -> bool:
        """Whether it may run outside of the loop, for all steps at once.

        A branch would run both sides there, and an inner loop as often as the longest
        of them needs.
        """
        return self.kind != "control"
