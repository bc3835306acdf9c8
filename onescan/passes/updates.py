"""updates: what a branch writes into an array is written behind the branches.

In goes a loop with ``cond(p, lambda c: c.at[i].set(u), lambda c: c, c)``, as NumPyro's
`fori_collect` keeps its samples.  Out comes one whose branches give where to write and
what, and an update behind them, which a kernel does in the array's own memory.  A
branch that gives the whole array would have to copy it in every step.

Right, because a branch that leaves the array alone writes past its end, where an update
is dropped, or puts back what stands at its start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Var

from onescan import compat
from onescan.loop import Equation, Loop
from onescan.passes.overtime import evaluate
from onescan.passes.split import Split, parts_of, rebuilt, unchanged
from onescan.passes.traced import traced
from onescan.passes.worth import elements

#: how many times as large as what is written an array must be
LARGER = 8


@dataclass(frozen=True)
class Update:
    """An operand of a `cond` that one branch updates and the others give back."""

    operand: int
    branch: int
    maker: Equation

    @property
    def given(self) -> list[Any]:
        """Where that branch writes, and what, as the equation takes it."""
        return list(self.maker.invars[1:])

    def nothing(self, array: Any) -> list[Any]:
        """The same that changes nothing."""
        shapes = [(tuple(v.aval.shape), v.aval.dtype) for v in self.given]
        if self.maker.primitive.name == "dynamic_update_slice":
            (sizes, _), *starts = shapes
            first = [np.zeros((), dtype) for _, dtype in starts]
            return [lax.dynamic_slice(array, first, sizes), *first]
        (places, kind), (sizes, dtype) = shapes
        past = max(array.shape)
        return [lax.full(places, past, kind), lax.full(sizes, 0, dtype)]


def updates(loop: Loop) -> Split | None:
    """Write behind branches what one of them writes."""
    parts = parts_of(loop)
    eqns: list[JaxprEqn] = []
    count = 0
    for eqn in parts.eqns:
        found = _updates(eqn)
        behind = _behind(eqn, found) if found else None
        count += len(found) if behind else 0
        eqns += behind or [eqn]
    if not count:
        return None
    what = "1 array" if count == 1 else f"{count} arrays"
    return Split(
        name="updates",
        loop=rebuilt(loop, parts.replace(eqns=tuple(eqns))),
        before=unchanged,
        after=lambda args, results: results,
        notes=(f"wrote into {what} behind a branch, not in it",),
    )


def _updates(eqn: Equation) -> dict[int, Update]:
    """By result of a `cond`: what one of its branches updates."""
    if eqn.primitive.name != "cond" or eqn.effects:
        return {}
    if any(branch.consts for branch in eqn.params["branches"]):
        return {}
    found = (_update(eqn, k) for k in range(len(eqn.outvars)))
    return {k: update for k, update in enumerate(found) if update}


def _update(eqn: Equation, result: int) -> Update | None:
    operands, makers = set(), []
    for number, branch in enumerate(eqn.params["branches"]):
        jaxpr = branch.jaxpr
        outer: dict[Any, Any] = dict(zip(jaxpr.invars, eqn.invars[1:], strict=True))
        value = jaxpr.outvars[result]
        if not isinstance(value, Var):
            return None
        if value not in outer:
            maker = _maker(jaxpr, value)
            if maker is None:
                return None
            makers.append((number, maker))
            value = maker.invars[0]
        if not isinstance(value, Var) or not isinstance(outer.get(value), Var):
            return None
        operands.add(outer[value])
    if len(makers) != 1 or len(operands) != 1:
        return None
    ((number, maker),), (array,) = makers, operands
    return Update(eqn.invars.index(array) - 1, number, maker)


def _maker(jaxpr: Any, value: Var) -> Equation | None:
    """The equation of a branch that updates an array, which nothing else reads."""
    uses = Counter(v for e in jaxpr.eqns for v in e.invars if isinstance(v, Var))
    uses.update(v for v in jaxpr.outvars if isinstance(v, Var))
    maker = next((e for e in jaxpr.eqns if value in e.outvars), None)
    if maker is None or uses[value] != 1:
        return None
    if maker.primitive.name == "dynamic_update_slice":
        array, written, *_ = maker.invars
    elif maker.primitive.name.startswith("scatter"):
        array, _, written = maker.invars
        if not _has_a_place_past_the_end(maker):
            return None
    else:
        return None
    return maker if elements([array]) >= LARGER * elements([written]) else None


def _has_a_place_past_the_end(scatter: Equation) -> bool:
    """Whether a scatter writes to one place, which may be one where it is dropped."""
    array, places, _ = scatter.invars
    *batch, depth = places.aval.shape
    drops = scatter.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    holds = np.iinfo(places.aval.dtype).max >= max(array.aval.shape)
    return drops and holds and depth > 0 and prod(batch) == 1


def _behind(eqn: JaxprEqn, found: dict[int, Update]) -> list[JaxprEqn] | None:
    """A `cond` without its updates, and these."""

    def run(number: int, *values: Any) -> list[list[Any]]:
        jaxpr = eqn.params["branches"][number].jaxpr
        wanted = [[value] for value in jaxpr.outvars]
        for k, update in found.items():
            wanted[k] = update.given if number == update.branch else []
        env = dict(zip(jaxpr.invars, values, strict=True))
        made = iter(evaluate(jaxpr.eqns, env, [v for few in wanted for v in few]))
        return [
            [next(made) for _ in few] or found[k].nothing(values[found[k].operand])
            for k, few in enumerate(wanted)
        ]

    def apply(index: Any, *values: Any) -> Sequence[Any]:
        count = len(eqn.params["branches"])
        branches = [lambda *xs, n=n: run(n, *xs) for n in range(count)]
        results = lax.switch(index, branches, *values)
        for k, update in found.items():
            array = values[update.operand]
            results[k] = compat.bind(update.maker, [array, *results[k]])
        return [value for (value,) in results]

    return traced(apply, list(eqn.invars), eqn)
