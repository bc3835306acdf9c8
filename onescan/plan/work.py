"""How much a body computes: operations by equation, nested bodies included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Jaxpr

from onescan import compat
from onescan.loop import Equation, Loop
from onescan.primitives import record_of

#: rounds of a while loop inside a body, where somebody has to guess
ROUNDS = 10


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


def counted_steps(loop: Loop) -> int:
    """The steps, or rounds of a while loop, that a kernel's profile counts."""
    return ROUNDS if loop.is_while else max(loop.length, 1)


def step_of(loop: Loop) -> list[Work]:
    """What each equation does in one step of a scan, one round of a while loop."""
    return [work for jaxpr in loop.rounds for work in work_of(jaxpr)]


def work_of(jaxpr: Jaxpr, times: int = 1) -> Iterator[Work]:
    """What each equation does; a while loop inside is counted as some rounds."""
    for eqn in jaxpr.eqns:
        yield from work_in(eqn, times)


def work_in(eqn: Equation, times: int = 1) -> Iterator[Work]:
    """What one equation does, with all that is inside it."""
    name = eqn.primitive.name
    if name == "scan":
        inner = compat.loop_of(eqn.params)
        yield from work_of(inner.body.jaxpr, times * inner.length)
    elif name == "while":
        yield from work_of(eqn.params["body_jaxpr"].jaxpr, times * ROUNDS)
        yield from work_of(eqn.params["cond_jaxpr"].jaxpr, times * ROUNDS)
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
