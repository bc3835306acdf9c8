"""hoist: work that does not read the carry is done before the loop.

In goes a loop; out comes one whose body no longer computes

* values that every step computes alike (from constants only): they are computed
  once and become constants of the loop;
* heavy values that need this step's x but not the carry, the ``x_t @ W`` of a
  recurrent network or random numbers from this step's key: they are computed for
  all steps at once, as one matrix product with time as one more row index, and
  become xs of the loop.  What is made of random bits alone goes with them, while
  it is no larger than they are.

Right, because neither kind can see what the loop has done so far: its operands
are the loop's own arguments, and equations have no effects.  The loop runs at
least one step, so nothing is computed that was not computed before.

Cheap values stay: a kernel makes them from what it holds in registers anyway,
and outside they would have to be stored and loaded for every step.  So do numbers
that follow from the program alone: a compiler knows them, and makes better code
for a divisor that it knows than for one that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import JaxprEqn, Var

from onescan.loop import Loop, nbytes
from onescan.passes.overtime import Kind, evaluate, in_rows, kinds_of, leaves, over_time
from onescan.passes.split import (
    Split,
    Values,
    parts_of,
    reads,
    rebuilt,
    slice_of,
    variables,
)
from onescan.passes.worth import (
    Draws,
    described,
    elements,
    is_draw,
    is_long_sum,
    largest_of_batch,
    operations,
)
from onescan.primitives import record_of

#: what stays in the loop, with all that follows from it, though it is made of draws:
#: products that a kernel does as well; sums along an axis of all steps at once, for
#: which XLA compiles 25 s on a GPU instead of one; and what XLA's own loops on a GPU
#: gain nothing from, such as what decides about a branch
STAYS: dict[Draws, tuple[str, ...]] = {
    "few": ("product",),
    "small": ("product", "cumulative", "reduction", "sort"),
    "all": ("cumulative",),
}

#: numbers for each result from which a sum is not computed a second time
MUCH = 16


def hoist(
    loop: Loop, draws: Draws = "few", sums: bool = False, batches: bool = True
) -> Split | None:
    """Take out what needs no carry, if it is worth it.

    Few draws of a step, which leave vectors unfilled, are done by a loop of their own
    over some steps with all others as lanes; all draws, if they are wanted, by XLA.
    So are `sums` of many numbers, and where `batches` are, products of what changes.
    """
    parts = parts_of(loop)
    kinds = kinds_of(parts)
    drawn = _drawn(loop, parts.eqns, kinds, draws)
    largest = largest_of_batch(loop.length, batches)

    def goes(eqn: JaxprEqn) -> bool:
        kind = kinds[eqn.outvars[0]] if eqn.outvars else "bound"
        if kind == "fixed":
            return not eqn.effects and is_worth_keeping(eqn)
        heavy = leaves(eqn, kinds, draws, largest=largest)
        return kind == "free" and (heavy or (sums and is_long_sum(eqn)))

    gone = filter(goes, parts.eqns)
    outside = {v for eqn in gone for v in eqn.outvars} | drawn
    outside -= numbers(parts.eqns)
    kept = slice_of(parts.eqns, parts.results, {*parts.inputs, *outside})
    crossing = reads(kept, parts.results) & outside
    if not crossing:
        return None
    if twice := _sums_on_the_way(parts.eqns, crossing, {*parts.inputs}, kept):
        outside |= twice
        kept = slice_of(parts.eqns, parts.results, {*parts.inputs, *outside})
        crossing = reads(kept, parts.results) & outside
    made = [v for eqn in parts.eqns for v in eqn.outvars if v in crossing]
    once = tuple(v for v in made if kinds[v] == "fixed")
    each = tuple(v for v in made if kinds[v] == "free")

    def before(args: Values) -> Values:
        consts, carry, xs = parts.split(args)
        fixed = dict(zip(parts.consts, consts, strict=True))
        fixed.update(zip(once, evaluate(parts.eqns, fixed, once), strict=True))
        given = parts.eqns, fixed, dict(zip(parts.xs, xs, strict=True))
        few = [v for v in each if draws == "few" and v in drawn]
        rest = [v for v in each if v not in few]
        made = dict(zip(rest, over_time(*given, rest, loop.length), strict=True))
        made.update(zip(few, in_rows(*given, few, loop.length), strict=True))
        return [*fixed.values(), *carry, *xs, *(made[v] for v in each)]

    smaller = parts.replace(
        consts=(*parts.consts, *once), xs=(*parts.xs, *each), eqns=tuple(kept)
    )
    inside = set(map(id, kept))
    gone = [eqn for eqn in parts.eqns if id(eqn) not in inside and operations(eqn)]
    free = [e for e in gone if kinds[e.outvars[0]] == "free"]
    heavy = [e for e in free if goes(e) or is_draw(e)]
    fixed = [e for e in gone if kinds[e.outvars[0]] == "fixed"]
    return Split(
        name="hoist",
        loop=rebuilt(loop, smaller),
        before=before,
        after=lambda args, results: results,
        notes=_notes(loop, heavy, fixed),
        extra=nbytes([v.aval for v in each]),
        moved=(*heavy, *fixed),
    )


def _sums_on_the_way(
    eqns: Sequence[JaxprEqn], made: set[Var], given: set[Var], kept: Sequence[JaxprEqn]
) -> set[Var]:
    """What is small, made of much, and computed before the loop on the way to others.

    A step that computes it too would do that work again, to save a few loads.
    """
    inside = set(map(id, kept))
    return {
        v
        for eqn in slice_of(eqns, made, given)
        if id(eqn) in inside and elements(eqn.invars) >= MUCH * elements(eqn.outvars)
        for v in eqn.outvars
    }


def _drawn(
    loop: Loop, eqns: Sequence[JaxprEqn], kinds: dict[Var, Kind], draws: Draws
) -> set[Var]:
    """Random bits that need no carry, and what is made of them and is no larger.

    Of few draws a step: no larger than these.
    """
    found: set[Any] = set()
    stuck: set[Any] = set()
    for eqn in eqns:
        inputs = variables(eqn.invars)
        if not eqn.outvars or kinds[eqn.outvars[0]] != "free":
            continue
        follows = not found.isdisjoint(inputs)
        if not stuck.isdisjoint(inputs) or (
            follows and record_of(eqn).kind in STAYS[draws]
        ):
            stuck.update(eqn.outvars)
            continue
        if draws == "few":
            read = [v for v in inputs if v in found]
        else:
            read = [v for v in inputs if kinds[v] == "free"]
        smaller = elements(eqn.outvars) <= elements(read)
        if is_draw(eqn, draws, loop.length) or (follows and smaller):
            found.update(eqn.outvars)
    return found


def numbers(eqns: Sequence[JaxprEqn]) -> set[Var]:
    """Single values computed from literals alone."""
    found: set[Var] = set()
    for eqn in eqns:
        if found.issuperset(variables(eqn.invars)) and elements(eqn.outvars) == 1:
            found.update(eqn.outvars)
    return found


def is_worth_keeping(eqn: JaxprEqn) -> bool:
    """Whether loading a fixed value beats computing it anew: not what only spreads
    smaller values out."""
    work, size = operations(eqn), elements(eqn.outvars)
    spreads = size > max((elements([v]) for v in eqn.invars), default=0)
    return work > size if spreads else work > 0


def _notes(loop: Loop, heavy: list[JaxprEqn], fixed: list[JaxprEqn]) -> tuple[str, ...]:
    notes = described("hoisted", heavy, f"over {loop.length} steps")
    once = f"once instead of {loop.length} times"
    return (*notes, *described("computed", fixed, once))
