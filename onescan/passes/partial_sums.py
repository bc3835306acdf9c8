"""partial_sums: what is summed over lanes and over time is summed over time first.

In goes a loop with ``total = total + sum(g_t)``: a running loss, or the gradient of
what all rows of a batch share.  Each step waits for all lanes there, which keeps them
together.  Here every lane has a total of its own, ``totals = totals + g_t``, and these
are summed once, after the loop; so lanes are independent, and no step leaves g_t behind
for it, which `accumulate` would have it do.  What lies between the sum and the carry
(a division by the number of rows, a reshape) is linear, and done once, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Literal, Var

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
from onescan.passes.split import Parts, Split, Values, parts_of, rebuilt
from onescan.passes.totals import Totals

#: bytes of the totals of all lanes: a few carries that are read and written
MOST = 1 << 18


@dataclass(frozen=True, eq=False)
class Total:
    """What an accumulator sums over lanes, and the carry that collects it for each."""

    term: Var
    old: Var
    new: Var
    add: JaxprEqn


def partial_sums(loop: Loop) -> Split | None:
    """Sum over time first, where that makes lanes independent."""
    parts = parts_of(loop)
    known = Totals(parts, ())
    collected = [a for a in accumulators(parts) if a.kind == "sum"]
    found = {a: terms for a in collected if (terms := _terms(a, known))}
    every: dict[Any, Total] = {
        g: _total(g) for terms in found.values() for g in terms.values()
    }
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
        zeros = (jnp.zeros(g.aval.shape, g.aval.dtype) for g in every)
        return [*consts, *(carry[i] for i in kept), *zeros, *xs]

    def after(args: Values, results: Values) -> Values:
        consts, carry, _ = parts.split(args)
        last, ys = len(kept), len(kept) + len(every)
        sums = dict(zip(every, results[last:ys], strict=True))
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


def _terms(a: Accumulator, known: Totals) -> dict[Any, Any]:
    """For each term of an accumulator what it is a sum of; empty if one is none."""
    found = {term: _summed(term, known) for term in a.terms}
    return {} if None in found.values() else found


def _summed(v: Any, known: Totals) -> Any:
    """The first operand of the sums that a value is made by, if it needs the carry."""
    found: Any = None
    while (maker := known.makers.get(v)) is not None:
        operands = known.operands(maker)
        if operands is None or len(operands) != 1 or known.is_product(maker):
            break
        (v,) = operands
        if maker.primitive.name == "reduce_sum":
            found = v
        elif maker.primitive.name == "dot_general":
            break
    if found is None or isinstance(found, Literal) or known.kinds[found] != "bound":
        return None
    dtype: Any = found.aval.dtype
    exact = jnp.issubdtype(dtype, np.integer) or np.dtype(dtype).itemsize >= 4
    return found if exact and not jnp.issubdtype(dtype, np.bool_) else None


def _total(g: Any) -> Total:
    """A carry that collects the values of another variable."""
    old, new, kind = Var(g.aval), Var(g.aval), g.aval
    like = jax.ShapeDtypeStruct(kind.shape, kind.dtype)
    (add,) = jax.make_jaxpr(lax.add)(like, like).jaxpr.eqns
    return Total(g, old, new, add.replace(invars=[old, g], outvars=[new]))


def _with(parts: Parts, totals: list[Total]) -> Parts:
    """A body with such carries behind its own."""
    return parts.replace(
        carry=(*parts.carry, *(t.old for t in totals)),
        new_carry=(*parts.new_carry, *(t.new for t in totals)),
        eqns=(*parts.eqns, *(t.add for t in totals)),
    )
