"""placed: a number that is put into a small row is selected there.

In goes a body that sets one number of a few and reads them all, as of a ring buffer:
``row.at[i].set(x)`` and ``row.mean()``.  Out comes one with
``where(iota == i, x, row)``.  A processor that stores a number and loads the vector it
is part of waits until the store has left its queue, behind all that went before;
selected, the row never leaves its registers, and steps overlap.

Right, because the position is compared as the update takes it: held inside, or equal to
no place where it lies outside and the update is dropped.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from jax import lax
from jax.extend.core import JaxprEqn, Var

from onescan.loop import Equation, Loop
from onescan.passes.split import Parts, Split, parts_of, rebuilt, unchanged, variables
from onescan.passes.traced import traced
from onescan.primitives import is_refused, record_of

#: numbers of a row up to which a step selects from all of them
MOST = 64
#: kinds of operations that take few numbers of a row, or have it taken over
FEW = ("gather", "update", "view", "control")
SCATTERS = ("scatter", "scatter-add")


def placed(loop: Loop) -> Split | None:
    """Select where one number of a small row is set that is read as a whole."""
    parts = parts_of(loop)
    families = _families(parts)
    whole = _read_as_wholes(parts, families)
    eqns: list[JaxprEqn] = []
    count = 0
    for eqn in parts.eqns:
        changed = None
        family = families.get(eqn.outvars[0]) if _sets_a_number(eqn) else None
        if family in whole:
            changed = traced(partial(_selected, eqn), eqn.invars, eqn)
        count += changed is not None
        eqns += changed or [eqn]
    if not count:
        return None
    what = "1 small row" if count == 1 else f"{count} small rows"
    return Split(
        name="placed",
        loop=rebuilt(loop, parts.replace(eqns=tuple(eqns))),
        before=unchanged,
        after=lambda args, results: results,
        notes=(f"kept {what} in registers, where a number of it is set",),
    )


def _sets_a_number(eqn: Equation) -> bool:
    """Whether an equation changes one number of a small row."""
    shape = getattr(eqn.invars[0].aval, "shape", ()) if eqn.invars else ()
    if len(shape) != 1 or not 1 < shape[0] <= MOST:
        return False
    if eqn.primitive.name == "dynamic_update_slice":
        return prod(eqn.invars[1].aval.shape) == 1
    if eqn.primitive.name not in SCATTERS:
        return False
    _, places, given = (tuple(v.aval.shape) for v in eqn.invars)
    return places == (1,) and prod(given) == 1 and not is_refused(eqn)


def _families(parts: Parts) -> dict[Any, frozenset[Any]]:
    """For what a row is called, all that it is called as numbers of it are set.

    The next step has a carry under its name there.
    """
    families: dict[Any, frozenset[Any]] = {}
    pairs = [(e.invars[0], e.outvars[0]) for e in parts.eqns if _sets_a_number(e)]
    for one, other in [*pairs, *zip(parts.carry, parts.new_carry, strict=True)]:
        if isinstance(one, Var) and isinstance(other, Var):
            names = {one, other}
            both = names.union(*(families.get(name, ()) for name in names))
            families |= dict.fromkeys(both, frozenset(both))
    return families


def _read_as_wholes(
    parts: Parts, families: dict[Any, frozenset[Any]]
) -> set[frozenset[Any]]:
    """The rows of which something reads all numbers."""
    read = variables(parts.ys)
    for eqn in parts.eqns:
        if record_of(eqn).kind not in FEW:
            read += variables(eqn.invars)
    return {families[v] for v in read if v in families}


def _selected(eqn: Equation, row: Any, *given: Any) -> list[Any]:
    """What an update makes of a row, as a selection."""
    if eqn.primitive.name == "dynamic_update_slice":
        (value, place), held = given, True
    else:
        (place, value), held = given, eqn.params["mode"] == lax.GatherScatterMode.CLIP
    place, value = lax.reshape(place, ()), lax.reshape(value, ())
    if held:
        first, last = (lax.full((), n, place.dtype) for n in (0, row.size - 1))
        place = lax.clamp(first, place, last)
    numbers = lax.iota(place.dtype, row.size)
    value = lax.broadcast(value, row.shape)
    if eqn.primitive.name == "scatter-add":
        value = lax.add(row, value)
    here = lax.eq(numbers, lax.broadcast(place, row.shape))
    return [lax.select(here, value, row)]
