"""sink: heavy work that only feeds ys is done after the loop.

In goes a loop; out comes one whose body no longer computes matrix products that
no later step needs (a readout, a loss term).  Their operands become ys instead,
and after the loop the products are computed for all steps at once, with
everything that follows from them.

Right, because a value the new carry does not depend on cannot reach another step,
so when it is computed does not matter; and because what the moved equations read
is left behind by the loop, given to it, or computed from that alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.extend.core import JaxprEqn, Var

from onescan.loop import Loop, nbytes
from onescan.passes.overtime import computed_after, kinds_of, leaves
from onescan.passes.split import (
    Parts,
    Split,
    parts_of,
    rebuilt,
    slice_of,
    unchanged,
    variables,
)
from onescan.passes.worth import (
    PER_ELEMENT,
    Draws,
    described,
    is_draw,
    is_movable,
    is_view,
    largest_of_batch,
    operations,
    pays,
)


def sink(loop: Loop, draws: bool = False, batches: bool = True) -> Split | None:
    """Take out what only feeds ys, if it is worth it; draws of random bits too."""
    parts = parts_of(loop)
    kinds = kinds_of(parts)
    largest = largest_of_batch(loop.length, batches)

    def is_worth_it(eqn: JaxprEqn) -> bool:
        which: Draws = "all" if draws else "few"
        heavy = leaves(eqn, kinds, which, PER_ELEMENT, largest)
        return heavy or (draws and is_draw(eqn))

    sunk = _sunk(parts, is_worth_it)
    if not sunk:
        return None
    made = {v for eqn in sunk for v in eqn.outvars}
    goes = [isinstance(y, Var) and y in made for y in parts.ys]
    stays = [y for y, gone in zip(parts.ys, goes, strict=True) if not gone]
    new = tuple(v for v in _operands(parts, sunk) if not any(v is y for y in stays))
    heavy = list(filter(is_worth_it, sunk))
    if not pays(sum(map(operations, heavy)), new):
        return None
    left = (*stays, *new)

    return Split(
        name="sink",
        loop=rebuilt(loop, parts.replace(ys=left)),
        before=unchanged,
        after=computed_after(loop, parts, left, goes),
        notes=tuple(described("sank", heavy, f"below {loop.length} steps")),
        extra=nbytes([v.aval for v in new]),
        moved=tuple(heavy),
    )


def _sunk(parts: Parts, is_worth_it: Callable[[JaxprEqn], bool]) -> list[JaxprEqn]:
    """The heavy equations that only feed ys, and all that follows from them."""
    needed = set(map(id, slice_of(parts.eqns, parts.new_carry, parts.inputs)))
    found: list[JaxprEqn] = []
    made: set[Any] = set()
    for eqn in parts.eqns:
        follows = not made.isdisjoint(variables(eqn.invars))
        if follows and not is_movable(eqn):
            return []
        if id(eqn) not in needed and (follows or is_worth_it(eqn)):
            found.append(eqn)
            made.update(eqn.outvars)
    return found


def _operands(parts: Parts, sunk: list[JaxprEqn]) -> list[Var]:
    """What the loop must leave behind for the equations that leave it."""
    kinds = kinds_of(parts)
    makers = {v: eqn for eqn in parts.eqns for v in eqn.outvars}
    inside = {v for eqn in sunk for v in eqn.outvars}
    found: dict[Var, None] = {}

    def leave(v: Any) -> None:
        if v in inside or kinds[v] != "bound":
            return
        maker = makers.get(v)
        if maker is not None and is_view(maker):  # its source will do
            for x in variables(maker.invars):
                leave(x)
        else:
            found[v] = None

    for eqn in sunk:
        for v in variables(eqn.invars):
            leave(v)
    return list(found)
