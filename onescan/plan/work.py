"""How much a body computes: operations by equation, nested bodies included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Jaxpr

from onescan import compat
from onescan.loop import Equation
from onescan.primitives import record_of


@dataclass(frozen=True)
class Work:
    """Operations of one equation in one step of the loop."""

    eqn: Equation
    elements: int  # results
    each: float  # operations per result
    times: int  # how often it runs in a step

    @property
    def operations(self) -> float:
        return self.elements * self.each * self.times


def work_of(jaxpr: Jaxpr, times: int = 1) -> Iterator[Work]:
    """What each equation does; a while loop is counted as ten rounds."""
    for eqn in jaxpr.eqns:
        yield from work_in(eqn, times)


def work_in(eqn: Equation, times: int = 1) -> Iterator[Work]:
    """What one equation does, with all that is inside it."""
    name = eqn.primitive.name
    if name == "scan":
        inner = compat.loop_of(eqn.params)
        yield from work_of(inner.body.jaxpr, times * inner.length)
    elif name == "while":
        yield from work_of(eqn.params["body_jaxpr"].jaxpr, times * 10)
        yield from work_of(eqn.params["cond_jaxpr"].jaxpr, times * 10)
    elif name == "cond":
        for branch in eqn.params["branches"]:
            yield from work_of(branch.jaxpr, times)
    else:
        yield Work(eqn, *record_of(eqn).done(eqn), times)


def equations(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Every equation of a body, those of inner bodies included."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(part, "jaxpr", part)  # of a closed one
                if isinstance(inner, Jaxpr):
                    yield from equations(inner)


def operand_of(eqn: Equation) -> Any:
    """The value whose last dimension an equation runs along."""
    reduces = record_of(eqn).kind == "reduction"
    return eqn.invars[0] if reduces else eqn.outvars[0]
