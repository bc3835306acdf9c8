"""accumulate: carries that are only added to leave the loop.

In goes a loop; out comes one without the carries whose only use is
``c = c + g_t`` (every weight gradient of a backward loop), and the final value is
``c + sum_t g_t``, computed after the loop.  The body never reads such a carry
otherwise, so no other value changes.  Addition is associative and commutative but
for rounding, so the sum may be taken in any order and the direction of the loop
does not matter.  The same holds for the other kinds of accumulators, such as
``max`` and ``logaddexp`` (`onescan.passes.links`).

Where g_t is a product of two values of the step, the sum over time is one matrix
product over time and batch (`onescan.passes.totals`), which is what makes the
gradient of a recurrent network fast.  An accumulator is taken out when that saves
the loop far more work than what it must now leave behind costs, or when without
it the steps fall apart into independent lanes.

An accumulator of values as they are, neither products nor sums of more, costs a
kernel next to nothing, less than reading all steps again would.  XLA's loops are
helped by taking those out too (`reductions`), a logaddexp above all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from jax.extend.core import JaxprEqn, Literal, Var

from onescan import compat
from onescan.loop import Loop, nbytes
from onescan.passes.links import LOGADDEXP, REDUCTIONS, Link, Uses, link_from
from onescan.passes.overtime import over_time
from onescan.passes.split import (
    Parts,
    Split,
    Values,
    parts_of,
    reads,
    rebuilt,
    variables,
)
from onescan.passes.totals import Totals
from onescan.passes.worth import described, operations, pays_to_sum
from onescan.plan.lanes import lane_axes

#: times as many independent lanes that make an accumulator worth taking out
MORE_LANES = 8
#: what makes less of its operands, and is left out when a sum over time is taken
SHRINKING = ("dot_general", "reduce_sum")


@dataclass(frozen=True, eq=False)
class Accumulator:
    """A carry that only collects: ``c = add(add(c, g1), g2)``."""

    place: int  # among the carries
    kind: str  # of all its links
    chain: tuple[Link, ...]  # from the old value to the new

    @property
    def terms(self) -> list[Any]:
        return [link.term for link in self.chain]

    @property
    def eqns(self) -> list[JaxprEqn]:
        return [eqn for link in self.chain for eqn in link.eqns]

    def final(self, init: Any, totals: list[Any]) -> Any:
        """The last value of the carry."""
        for link, total in zip(self.chain, totals, strict=True):
            init = link.combine(init, total)
        return init


def accumulate(loop: Loop, reductions: bool = False) -> Split | None:
    """Take out the accumulators that are worth it."""
    parts = parts_of(loop)
    found = accumulators(parts)
    if not found:
        return None
    totals = Totals(parts, parts.ys)
    taken = _worthwhile(found, totals, reductions)
    taken += _blocking(loop, parts, found, taken, totals)
    if not taken:
        return None
    taken.sort(key=lambda a: a.place)
    kept = kept_of(parts, taken)
    ys = set(variables(parts.ys))
    new = tuple(v for v in _in_order(parts, totals.left) if v not in ys)

    def after(args: Values, results: Values) -> Values:
        consts, init, xs = parts.split(args)
        finals = dict(zip(kept, results[: len(kept)], strict=True))
        stacks = results[len(kept) :]
        fixed = dict(zip(parts.consts, consts, strict=True))
        stacked = dict(zip(parts.xs, xs, strict=True))
        for v, stack in zip([*parts.ys, *new], stacks, strict=True):
            if isinstance(v, Var):
                stacked[v] = stack
        total = totals.evaluator(fixed, stacked, loop.length)

        def reduced(a: Accumulator, term: Any) -> Any:
            if a.kind == "sum":
                return total(term)
            (rows,) = over_time(parts.eqns, fixed, stacked, [term], loop.length)
            return REDUCTIONS[a.kind](rows)

        for a in taken:
            collected = [reduced(a, term) for term in a.terms]
            finals[a.place] = a.final(init[a.place], collected)
        ordered = [finals[i] for i in range(len(parts.carry))]
        return [*ordered, *stacks[: len(parts.ys)]]

    def before(args: Values) -> Values:
        consts, carry, xs = parts.split(args)
        return [*consts, *(carry[i] for i in kept), *xs]

    products = {id(e): e for a in taken for t in a.terms for e in totals.products(t)}
    others = [a for a in taken if not _has_product(a, totals)]
    dear = [eqn for a in others if a.kind == LOGADDEXP for eqn in a.eqns]
    return Split(
        name="accumulate",
        loop=rebuilt(loop, without(parts, taken, new)),
        before=before,
        after=after,
        notes=_notes(loop, tuple(products.values()), others),
        extra=nbytes([v.aval for v in new]),
        moved=(*products.values(), *dear),
    )


def without(
    parts: Parts, taken: Iterable[Accumulator], new: Iterable[Var] = ()
) -> Parts:
    """The body without some accumulators, which leaves more values behind."""
    kept = kept_of(parts, taken)
    return parts.replace(
        carry=tuple(parts.carry[i] for i in kept),
        new_carry=tuple(parts.new_carry[i] for i in kept),
        ys=(*parts.ys, *new),
    )


def _in_order(parts: Parts, wanted: set[Var]) -> list[Var]:
    made = [v for eqn in parts.eqns for v in eqn.outvars]
    return [v for v in (*parts.carry, *made) if v in wanted]


def accumulators(parts: Parts) -> list[Accumulator]:
    """All carries of a body that only collect."""
    uses = Uses.of(parts)
    found = []
    for place, (old, new) in enumerate(zip(parts.carry, parts.new_carry, strict=True)):
        chain: list[Link] = []
        v = old
        while v is not new and (link := link_from(v, uses)):
            chain.append(link)
            v = link.new
        kinds = {link.kind for link in chain}
        ends = v is new and uses.leaving[v] == 1 and v not in uses.readers
        terms = tuple(link.term for link in chain)
        if ends and len(kinds) == 1 and not any(isinstance(t, Literal) for t in terms):
            found.append(Accumulator(place, kinds.pop(), tuple(chain)))
    return found


def _worthwhile(
    found: list[Accumulator], totals: Totals, reductions: bool
) -> list[Accumulator]:
    """Those that save work; what one leaves behind may be what another needs."""
    taken: list[Accumulator] = []
    changed = True
    while changed:
        changed = False
        for a in found:
            if a in taken:
                continue
            missing = _missing(a, totals)
            path = {id(e): e for t in a.terms for e in _path(a, t, totals, missing)}
            gain = sum(map(operations, [*path.values(), *a.eqns]))
            shrinks = any(e.primitive.name in SHRINKING for e in path.values())
            if (reductions or shrinks) and pays_to_sum(gain, missing):
                totals.leave(missing)
                taken.append(a)
                changed = True
    return taken


def _missing(a: Accumulator, totals: Totals, through_sums: bool = False) -> set[Var]:
    if a.kind == "sum":
        return set().union(*(totals.missing(t, through_sums) for t in a.terms))
    return {t for t in a.terms if not totals.is_ready(t)}


def _path(a: Accumulator, term: Any, totals: Totals, left: set[Var]) -> list[JaxprEqn]:
    return totals.path(term, left) if a.kind == "sum" else []


def _blocking(
    loop: Loop,
    parts: Parts,
    found: list[Accumulator],
    taken: list[Accumulator],
    totals: Totals,
) -> list[Accumulator]:
    """Those that keep the lanes of the loop together, if there are any."""
    rest = [a for a in found if a not in taken and a.kind == "sum"]
    if not rest:
        return []
    new = set().union(*(_missing(a, totals, through_sums=True) for a in rest))
    with_them = without(parts, taken, totals.left)
    alone = without(parts, [*taken, *rest], (*totals.left, *new))
    lanes = independent(rebuilt(loop, with_them))
    if independent(rebuilt(loop, alone)) < MORE_LANES * lanes:
        return []
    totals.leave(new)
    return rest


def kept_of(parts: Parts, taken: Iterable[Accumulator]) -> list[int]:
    """The places of the other carries."""
    places = {a.place for a in taken}
    return [i for i in range(len(parts.carry)) if i not in places]


def independent(loop: Loop) -> int:
    """Independent positions, along all lane axes of a loop that has a carry.

    Of what is read: a loop without its accumulators has inputs that nobody reads.
    """
    if not loop.num_carry:
        return 0
    read = reads(loop.body.jaxpr.eqns, loop.body.jaxpr.outvars)
    axes = [axis for axis in lane_axes(loop) if not read.isdisjoint(axis)]
    members: list[tuple[Any, Any]] = [next(iter(axis.items())) for axis in axes]
    return prod(v.aval.shape[dims[0]] for v, dims in members)


def _has_product(a: Accumulator, totals: Totals) -> bool:
    return any(map(totals.products, a.terms))


def _notes(
    loop: Loop, products: tuple[JaxprEqn, ...], others: list[Accumulator]
) -> tuple[str, ...]:
    notes = described(
        "accumulated", products, f"over {loop.length} steps into one each"
    )
    for kind in dict.fromkeys(a.kind for a in others):
        last = [a.eqns[-1] for a in others if a.kind == kind]
        places = "; ".join(dict.fromkeys(map(compat.expression_of, last)))
        what = kind if len(last) == 1 else f"{kind} each"
        count = "accumulator" if len(last) == 1 else "accumulators"
        notes.append(
            f"made {len(last)} {count} ({places}) a {what} over {loop.length} steps"
        )
    return tuple(notes)
