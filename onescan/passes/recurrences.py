"""Which carries of a body follow a linear recurrence, ``c' = a * c + b``.

A carry does when its new value is affine in the old one, element by element: made
from it by additions, multiplications and divisions by values that do not depend on
it, and by choices that do not.  The coefficients a and b may be anything else the
step computes, from xs or from other carries, as long as those carries do not depend
on this one in turn: in the graph of which carry reads which, it must be alone on
its cycle.

Only floats of 32 bits or more are looked at.  In fewer bits, rounding at every step
is much of what a recurrence computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Var

from onescan.passes.split import Parts, variables

#: what is known of a: nothing is carried on, all of it, or some of it
Factor = Literal["none", "one", "some"]


@dataclass(frozen=True, eq=False)
class Recurrence:
    """A carry with ``c' = a * c + b``."""

    place: int  # among the carries
    factor: Factor
    eqn: JaxprEqn | None  # that makes the new value, if the step makes it


def recurrences(parts: Parts) -> list[Recurrence]:
    """The linear recurrences of a body, each after those that it reads."""
    needs = _needs(parts)
    above = _all_above(needs)
    makers = {v: eqn for eqn in parts.eqns for v in eqn.outvars}
    found = []
    for place, new in enumerate(parts.new_carry):
        alone = not any(place in above[other] for other in above[place] - {place})
        factor = _factor(parts, place) if alone else None
        if factor is not None:
            eqn = makers.get(new) if isinstance(new, Var) else None
            found.append(Recurrence(place, factor, eqn))
    return sorted(found, key=lambda r: len(above[r.place] - {r.place}))


def last_ones(parts: Parts, found: list[Recurrence]) -> list[Recurrence]:
    """Those that no other carry reads, but for ones that are among them."""
    needs = _needs(parts)
    kept = list(found)
    while True:
        places = {r.place for r in kept}
        others = [needs[i] for i in range(len(needs)) if i not in places]
        fewer = [r for r in kept if not any(r.place in read for read in others)]
        if len(fewer) == len(kept):
            return kept
        kept = fewer


def _needs(parts: Parts) -> list[set[int]]:
    """For each carry, the carries that its new value is made from."""
    read: dict[Any, set[int]] = {v: {i} for i, v in enumerate(parts.carry)}
    for eqn in parts.eqns:
        needed = set().union(*(read.get(v, ()) for v in variables(eqn.invars)))
        read.update(dict.fromkeys(eqn.outvars, needed))
    return [
        read.get(v, set()) if isinstance(v, Var) else set() for v in parts.new_carry
    ]


def _all_above(needs: list[set[int]]) -> list[set[int]]:
    """The same through any number of steps."""
    above = [set(read) for read in needs]
    for through in range(len(needs)):
        for read in above:
            if through in read:
                read |= above[through]
    return above


def _factor(parts: Parts, place: int) -> Factor | None:
    """How the new value of a carry depends on the old, if linearly."""
    carry: Any = parts.carry[place]
    if not _is_wide(carry, carry):
        return None
    factors: dict[Any, Factor | None] = {carry: "one"}
    for eqn in parts.eqns:
        if any(v in factors for v in variables(eqn.invars)):
            kept = all(_is_wide(v, carry) for v in eqn.outvars)
            factor = _through(eqn, factors, carry) if kept else None
            factors.update(dict.fromkeys(eqn.outvars, factor))
    new = parts.new_carry[place]
    return factors.get(new, "none") if isinstance(new, Var) else "none"


def _is_wide(v: Any, carry: Any) -> bool:
    """Whether a value has the carry's shape and all of its precision."""
    return (
        v.aval.shape == carry.aval.shape
        and jnp.issubdtype(v.aval.dtype, np.inexact)
        and v.aval.dtype.itemsize >= max(4, carry.aval.dtype.itemsize)
    )


def _through(eqn: JaxprEqn, factors: dict[Any, Any], carry: Any) -> Factor | None:
    """What an equation makes of the dependence of its operands."""
    name = eqn.primitive.name
    reading = [isinstance(v, Var) and v in factors for v in eqn.invars]
    known = [factors[v] for v in variables(eqn.invars) if v in factors]
    if None in known:
        return None
    if any(
        r and not _is_wide(v, carry) for r, v in zip(reading, eqn.invars, strict=True)
    ):
        return None
    if name in ("add", "add_any"):
        return known[0] if len(known) == 1 else "some"
    if name == "sub":
        return known[0] if reading == [True, False] else "some"
    if name in ("neg", "convert_element_type"):
        return known[0] if name != "neg" else "some"
    if name == "mul":
        return "some" if len(known) == 1 else None
    if name in ("div", "select_n"):
        place = 1 if name == "div" else 0  # where it must not be
        return None if reading[place] else "some"
    return None
