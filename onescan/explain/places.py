"""Where each operation of a body runs, after the passes and the plan.

The passes keep the variables of a body, so an operation has left the loop in the
first pass after which nothing computes its result there any more; the pass and what
the operation depends on say where it went.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from jax.extend.core import JaxprEqn

from onescan.explain.decide import Decision
from onescan.loop import Loop
from onescan.passes.overtime import kinds_of
from onescan.passes.split import Split, parts_of
from onescan.passes.worth import operations

Place = Literal["once", "ahead", "before", "kernel", "xla", "after", "nowhere"]


class Told(NamedTuple):
    """A place, told to people."""

    letter: str  # for a margin
    name: str
    meaning: str


#: in the order of a program
PLACES: dict[Place, Told] = {
    "once": Told("1", "once before", "the same in every step, so computed once"),
    "ahead": Told("A", "loop before", "needs no other carry, so its own loop, first"),
    "before": Told("B", "batched before", "needs no carry: all steps at once, before"),
    "kernel": Told("K", "in the kernel", "in every step, in one native kernel"),
    "xla": Told("X", "in XLA", "in every step, in the loop that XLA runs"),
    "after": Told(
        "E", "batched after", "no step waits for it: all steps at once, after"
    ),
    "nowhere": Told("-", "no work", "its result is there already"),
}


@dataclass(frozen=True, eq=False)
class Placed:
    """One operation of the body, where it runs, and what it costs in a step."""

    eqn: JaxprEqn
    place: Place
    operations: float


def placed(decision: Decision) -> Iterator[Placed]:
    """Every operation of a loop's flat body."""
    gone: dict[object, Place] = {}
    bodies = decision.bodies
    pairs = zip(decision.splits, bodies, bodies[1:], strict=False)
    for split, before, after in pairs:
        for eqn, place in _leaving(split, before, after):
            for v in eqn.outvars:
                gone.setdefault(v, place)
    stays: Place = "kernel" if decision.reason is None else "xla"
    for eqn in decision.loop.body.jaxpr.eqns:
        result = eqn.outvars[0] if eqn.outvars else None
        yield Placed(eqn, gone.get(result, stays), operations(eqn))


def _leaving(
    split: Split, before: Loop, after: Loop
) -> Iterator[tuple[JaxprEqn, Place]]:
    """What one pass took out of the loop, and where it is now."""
    inside = {v for eqn in after.body.jaxpr.eqns for v in eqn.outvars}
    parts = parts_of(before)
    kinds = kinds_of(parts)
    for eqn in parts.eqns:
        if not eqn.outvars or not inside.isdisjoint(eqn.outvars):
            continue
        if split.name == "hoist":
            kind = kinds[eqn.outvars[0]]
            yield eqn, "once" if kind == "fixed" else "before"
        elif split.name in LEAVES_TO:
            yield eqn, LEAVES_TO[split.name]


#: by pass; others write a body anew and leave its work inside
LEAVES_TO: dict[str, Place] = {
    "simplify": "nowhere",
    "ahead": "ahead",
    **dict.fromkeys(
        ("partial_sums", "accumulate", "sink", "derive", "linear"), "after"
    ),
}
