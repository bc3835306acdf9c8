"""derive: ys that follow from other ys are computed from them after the loop.

In goes a loop that JAX made for a gradient; out comes one that no longer stacks what
a few operations make of something else it stacks.  JAX keeps what its rules for
derivatives ask for: of a sigmoid s both s and s * (1 - s), of a tanh t both t and
1 - t * t.  The backward loop that reads them computes them anew (`absorb`), and what
nobody reads in memory is never written there.

Right, because the operations are those of the body, on the same numbers, element by
element: when they are done does not matter.
"""

from __future__ import annotations

from jax.extend.core import JaxprEqn, Var

from onescan.loop import Loop
from onescan.passes.overtime import computed_after
from onescan.passes.split import Parts, Split, parts_of, rebuilt, unchanged
from onescan.passes.worth import FILLS_A_VECTOR, elements
from onescan.primitives import record_of

#: how many light primitives may lead from one y to another
MOST = 4


def derive(loop: Loop) -> Split | None:
    """Leave out ys that follow from others, in a loop made for a gradient."""
    if not loop.differentiated:
        return None
    parts = parts_of(loop)
    following = _following(parts)
    if not following:
        return None
    derived = [isinstance(y, Var) and y in following for y in parts.ys]
    stays = tuple(y for y, gone in zip(parts.ys, derived, strict=True) if not gone)

    count = sum(derived)
    what = "1 y that follows" if count == 1 else f"{count} ys that follow"
    return Split(
        name="derive",
        loop=rebuilt(loop, parts.replace(ys=stays)),
        before=unchanged,
        after=computed_after(loop, parts, stays, derived),
        notes=(f"did not stack {what} from others by a few operations",),
    )


def _following(parts: Parts) -> set[Var]:
    """The ys that are made from one other y, or one x, by light work alone."""
    makers = {v: eqn for eqn in parts.eqns for v in eqn.outvars}
    stacked = {v for v in (*parts.ys, *parts.xs) if isinstance(v, Var)}
    found: set[Var] = set()
    for y in makers:  # in the order in which they are made
        if y in stacked and _follows(y, makers, stacked - found - {y}, parts):
            found.add(y)
    return found


def _follows(
    y: Var, makers: dict[Var, JaxprEqn], there: set[Var], parts: Parts
) -> bool:
    if elements([y]) < FILLS_A_VECTOR:
        return False
    sources: set[Var] = set()
    work: set[int] = set()
    waiting = [y]
    while waiting:
        v = waiting.pop()
        if v in there:
            sources.add(v)
            continue
        if v in parts.consts:
            continue
        maker = makers.get(v)
        if maker is None or not record_of(maker).light:
            return False
        work.add(id(maker))
        waiting += [x for x in maker.invars if isinstance(x, Var)]
    return (
        len(work) <= MOST and len(sources) == 1 and elements(sources) == elements([y])
    )
