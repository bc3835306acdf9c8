"""partial_sums: what is summed over lanes and over time is summed over time first.

In goes a loop with ``total = total + sum(g_t)``: a running loss, or the gradient of
what all rows of a batch share.  Each step waits for all lanes there, which keeps them
together.  Here every lane has a total of its own, ``totals = totals + g_t``, and these
are summed once, after the loop; so lanes are independent, and no step leaves g_t behind
for it, which `accumulate` would have it do.  What lies between the sum and the carry
(a division by the number of rows, a reshape) is linear, and done once, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Var

from onescan import compat
from onescan.loop import Loop, nbytes
from onescan.passes.accumulate import (
    MORE_LANES,
    Accumulator,
    accumulators,
    independent,
    kept_of,
    without,
)
from onescan.passes.inline import expand
from onescan.passes.split import Parts, Split, Values, parts_of, rebuilt
from onescan.passes.totals import Totals
from onescan.primitives import record_of

#: bytes of the totals of all lanes: a few carries that are read and written
MOST = 1 << 18
#: values in the order in which they were found, and whether there are sums between
Sources = tuple[dict[Any, None], bool]
Found = dict[Any, Sources]
#: linear operations between a sum and the carry that are looked through
DEPTH = 64


@dataclass(frozen=True, eq=False)
class Total:
    """Carries that collect what an accumulator sums over lanes, for each of them.

    Of floats one is the sum, and another what its roundings took from it.
    """

    old: list[Var]
    new: list[Any]
    eqns: list[JaxprEqn]


def partial_sums(loop: Loop) -> Split | None:
    """Sum over time first, where that makes lanes independent."""
    parts = parts_of(loop)
    known = Totals(parts, ())
    collected = [a for a in accumulators(parts) if a.kind == "sum"]
    found = {a: sources for a in collected if (sources := _summed(a, known))}
    every = {v: _total(v, a.eqns[-1]) for a, some in found.items() for v in some}
    if not every or nbytes([g.aval for g in every]) > MOST:
        return None
    others = [a for a in collected if a not in found]
    totals = list(every.values())
    lanes = independent(rebuilt(loop, without(parts, others)))
    alone = rebuilt(loop, _with(without(parts, collected), totals))
    if independent(alone) < MORE_LANES * lanes:
        return None
    kept = kept_of(parts, found)

    def before(args: Values) -> Values:
        consts, carry, xs = parts.split(args)
        held: list[Any] = [v.aval for t in totals for v in t.old]
        zeros = (jnp.zeros(aval.shape, aval.dtype) for aval in held)
        return [*consts, *(carry[i] for i in kept), *zeros, *xs]

    def after(args: Values, results: Values) -> Values:
        consts, carry, _ = parts.split(args)
        last, sums = len(kept), {}
        ys = last
        for v, t in zip(every, totals, strict=True):
            sums[v] = _end(results[ys : ys + len(t.old)])
            ys += len(t.old)
        fixed = dict(zip(parts.consts, consts, strict=True))
        total = known.evaluator(fixed, {}, loop.length, sums)
        ends = dict(zip(kept, results[:last], strict=True))
        for a in found:
            ends[a.place] = a.final(carry[a.place], [total(t) for t in a.terms])
        return [*(ends[i] for i in range(len(carry))), *results[ys:]]

    places_of = (compat.expression_of(a.eqns[-1]) for a in found)
    what = "1 sum" if len(found) == 1 else f"{len(found)} sums"
    where = "; ".join(dict.fromkeys(places_of))
    note = f"took {what} ({where}) over steps in each lane, then over lanes"
    return Split(
        name="partial_sums",
        loop=rebuilt(loop, _with(without(parts, found), totals)),
        before=before,
        after=after,
        notes=(note,),
    )


def _summed(a: Accumulator, known: Totals) -> list[Any]:
    """What the terms of an accumulator are sums of; empty unless each sums lanes."""
    found: list[Any] = []
    fixed = any(map(known.is_fixed, a.terms))
    less = any(eqn.primitive.name == "sub" for eqn in a.eqns)
    if len(a.terms) > 1 and (fixed or less):  # little may be left of them in each step
        return []
    for term in a.terms:
        sources, over_lanes = _sources(term, known, {})
        if not over_lanes or not all(_is_exact(v.aval.dtype) for v in sources):
            return []
        found += sources
    return found


def _sources(v: Any, known: Totals, seen: Found, depth: int = DEPTH) -> Sources:
    """The values that one is linear in, and whether there are sums of lanes between."""
    if known.is_fixed(v):
        return {}, False
    if v not in seen:
        seen[v] = _sources_below(v, known, seen, depth)
    return seen[v]


def _sources_below(v: Any, known: Totals, seen: Found, depth: int) -> Sources:
    maker = known.makers.get(v)
    if maker is None or known.is_ready(v) or record_of(maker).kind == "product":
        return {v: None}, False
    operands = known.operands(maker) if depth else None
    if operands is None:
        return {v: None}, False
    below, over_lanes = {}, maker.primitive.name == "reduce_sum"
    for x in operands:
        sources, sums = _sources(x, known, seen, depth - 1)
        below |= sources
        over_lanes |= sums
    return (below, True) if over_lanes else ({v: None}, False)


def _is_exact(dtype: Any) -> bool:
    """Whether a total of numbers of this type loses nothing of them."""
    return jnp.issubdtype(dtype, np.integer) or np.dtype(dtype).itemsize >= 4


def _total(g: Any, where: JaxprEqn) -> Total:
    """Carries that collect the values of another variable, in place of `where`."""
    exact, eqns = jnp.issubdtype(g.aval.dtype, np.integer), []
    old = [Var(g.aval) for _ in range(1 if exact else 2)]
    new = expand(_with_one_more, [g, *old], where, eqns)
    return Total(old, new, eqns)


def _with_one_more(x: Any, total: Any, lost: Any = None) -> list[Any]:
    """A total with one more number, and what is lost (T. J. Dekker, 1971).

    Without it, the total of a lane would lose a part of each number that grows with
    the steps, where the sum of all lanes is small and loses none.
    """
    new = lax.add(total, x)
    if lost is None:
        return [new]
    return [new, lax.add(lost, lax.sub(x, lax.sub(new, total)))]


def _end(total: Sequence[Any]) -> Any:
    """A total with what it lost, unless that is infinite, or none of numbers."""
    if len(total) == 1:
        return total[0]
    whole, lost = total
    return jnp.where(jnp.isfinite(lost), whole + lost, whole)


def _with(parts: Parts, totals: list[Total]) -> Parts:
    """A body with such carries behind its own."""
    return parts.replace(
        carry=(*parts.carry, *(v for t in totals for v in t.old)),
        new_carry=(*parts.new_carry, *(v for t in totals for v in t.new)),
        eqns=(*parts.eqns, *(eqn for t in totals for eqn in t.eqns)),
    )
