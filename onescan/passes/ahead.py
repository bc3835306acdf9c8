"""ahead: carries that need no others run in a loop of their own, before the rest.

In goes a loop with a carry such as a random key, of which each step draws numbers for
the others, or the state of the first of two recurrent layers.  Such carries depend on
themselves and on what goes into the loop, never on the other carries.  Out comes a
loop of the others alone, to which the values of the first ones are given as xs: a
smaller loop has computed them for all steps.

That by itself gains nothing.  But what is computed from the first carries alone (the
draws, the product of the first layer's state with the second layer's weights) then
needs no carry any more, and `hoist` does it for all steps at once.  So it is done
where there is such work, heavy enough, and some other carry needs it; products that
only feed ys are for `sink`.

Right, because the first carries go through the same equations in the same order in
their own loop as in the common one, where nothing else was read, and because the rest
reads the value that each of them has at the beginning of its own step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax
from jax.extend.core import JaxprEqn, Var

from onescan import compat
from onescan.loop import Loop, nbytes
from onescan.passes.overtime import evaluate, kinds_of, leaves, used_inputs
from onescan.passes.split import (
    Parts,
    Split,
    Values,
    parts_of,
    reads,
    rebuilt,
    slice_of,
    variables,
)
from onescan.passes.worth import (
    PER_ELEMENT,
    PER_RESULT,
    Draws,
    described,
    is_draw,
    is_heavy,
    largest_of_batch,
    operations,
    pays,
)


def ahead(loop: Loop, draws: Draws = "few", batches: bool = True) -> Split | None:
    """Run carries ahead whose values free heavy work."""
    parts = parts_of(loop)
    is_drawn = lambda eqn: is_draw(eqn, draws, loop.length)
    largest = largest_of_batch(loop.length, batches)
    first, freed = _first(parts, is_drawn, draws, largest)
    if not freed:
        return None
    given = _given(parts, first)
    if any(map(is_drawn, freed)):
        worth_it = pays(sum(map(operations, freed)), given)
    elif draws == "small":  # two of XLA's loops launch twice as often as one
        worth_it = False
    else:
        left = [*given, *(v for eqn in freed for v in eqn.outvars)]
        least = PER_RESULT if draws == "few" else PER_ELEMENT
        worth_it = pays(sum(map(operations, freed)), left, least)
    if not worth_it:
        return None

    def before(args: Values) -> Values:
        consts, carry, xs = parts.split(args)
        finals, rows = _alone(loop, parts, sorted(first), given, consts, carry, xs)
        return [*consts, *(finals.get(i, c) for i, c in enumerate(carry)), *xs, *rows]

    # their last values go through the loop of the others untouched
    through = {i: Var(parts.carry[i].aval) for i in first}
    smaller = parts.replace(
        carry=tuple(through.get(i, v) for i, v in enumerate(parts.carry)),
        new_carry=tuple(through.get(i, v) for i, v in enumerate(parts.new_carry)),
        xs=(*parts.xs, *given),
    )
    end = "by running the carries that it takes ahead of the loop"
    return Split(
        name="ahead",
        loop=rebuilt(loop, smaller),
        before=before,
        after=lambda args, results: results,
        notes=tuple(described("freed", freed, end)),
        extra=nbytes([v.aval for v in given]),
        moved=tuple(freed),
    )


def _first(
    parts: Parts, is_drawn: Callable[[JaxprEqn], bool], draws: Draws, largest: float
) -> tuple[set[int], list[JaxprEqn]]:
    """The places of the carries to run ahead, and the work that this frees."""
    place = {v: i for i, v in enumerate(parts.carry)}
    needs: dict[Any, frozenset[int]] = {v: frozenset((i,)) for v, i in place.items()}
    for eqn in parts.eqns:
        read = (needs.get(v, frozenset()) for v in variables(eqn.invars))
        needs.update(dict.fromkeys(eqn.outvars, frozenset().union(*read)))
    closed = _closed([needs.get(v, frozenset()) for v in _atoms(parts.new_carry)])

    kinds = kinds_of(parts)
    first: set[int] = set()
    found: list[JaxprEqn] = []
    for eqn in parts.eqns:
        drawn = is_drawn(eqn)
        if not drawn and not leaves(eqn, kinds, draws, largest=largest):
            continue
        wanted = set().union(*(closed[i] for i in needs[eqn.outvars[0]]))
        if wanted and (drawn or _feeds_another(parts, eqn, wanted)):
            first |= wanted
            found.append(eqn)
    own = [parts.new_carry[i] for i in sorted(first)]
    kept = {id(eqn) for eqn in slice_of(parts.eqns, own, parts.inputs)}
    return first, [eqn for eqn in found if id(eqn) not in kept]


def _given(parts: Parts, first: set[int]) -> tuple[Var, ...]:
    """What the rest needs of the first carries, of every step.

    That is the carries themselves, from which it computes what else it needs again, for
    all steps at once; but not heavy work, of which it is given the results.
    """
    own = [parts.new_carry[i] for i in sorted(first)]
    rest = [v for i, v in enumerate(parts.new_carry) if i not in first]
    inside = slice_of(parts.eqns, own, parts.inputs)
    kept = {id(eqn) for eqn in inside}
    read = reads((e for e in parts.eqns if id(e) not in kept), [*rest, *parts.ys])
    heavy: set[Any] = set()
    for eqn in inside:
        if is_heavy(eqn) or not heavy.isdisjoint(variables(eqn.invars)):
            heavy.update(eqn.outvars)
    made = [v for eqn in inside for v in eqn.outvars if v in heavy and v in read]
    used = used_inputs(parts.eqns, [*rest, *parts.ys], [*parts.inputs, *made])
    carries = (parts.carry[i] for i in sorted(first))
    return tuple(v for v in (*carries, *made) if v in used)


def _atoms(results: Sequence[Any]) -> list[Any]:
    """Results to look up: a literal is no variable, and needs nothing."""
    return [v if isinstance(v, Var) else None for v in results]


def _closed(needs: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """For each carry, all carries that its values in all steps come from."""
    closed = [frozenset((i, *direct)) for i, direct in enumerate(needs)]
    while True:
        larger = [c.union(*(closed[i] for i in c)) for c in closed]
        if larger == closed:
            return closed
        closed = larger


def _feeds_another(parts: Parts, eqn: JaxprEqn, places: set[int]) -> bool:
    """Whether a carry at none of these places needs what an equation computes."""
    new = [v for i, v in enumerate(parts.new_carry) if i not in places]
    return any(e is eqn for e in slice_of(parts.eqns, new, parts.inputs))


def _alone(
    loop: Loop,
    parts: Parts,
    first: Sequence[int],
    given: Sequence[Var],
    consts: Values,
    carry: Values,
    xs: Values,
) -> tuple[dict[int, Any], Values]:
    """The last values of the first carries, and what is given of all steps."""
    fixed = dict(zip(parts.consts, consts, strict=True))
    new = [parts.new_carry[i] for i in first]
    used = used_inputs(parts.eqns, new, parts.inputs)
    rows = {v: x for v, x in zip(parts.xs, xs, strict=True) if v in used}

    def step(values: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        state = {parts.carry[i]: c for i, c in zip(first, values, strict=True)}
        env = {**fixed, **state, **dict(zip(rows, row, strict=True))}
        found = evaluate(parts.eqns, env, [*new, *given])
        return found[: len(new)], found[len(new) :]

    with compat.marked(inner=True):
        start = [carry[i] for i in first]
        last, stacks = lax.scan(
            step, start, list(rows.values()), loop.length, loop.reverse
        )
    return dict(zip(first, last, strict=True)), stacks
