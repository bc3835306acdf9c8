"""across: what depends on answers that only some lanes were asked for.

A question to a batch (`primitives/across.py`) is answered by the lanes of one tile, so
the answer differs from tile to tile.  Inside the lanes that is as it should be.  A
result of the loop that does not lie along the lanes, and depends on such an answer,
would be another for each tile: then the whole batch must be asked, and its axis is no
lane axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import Var

from onescan import compat
from onescan.loop import Equation
from onescan.plan.work import equations
from onescan.primitives import record_of
from onescan.primitives.axes import Axes, Node

#: the axes whose lanes were asked, by value
Asked = frozenset[Node]
NOBODY: Asked = frozenset()


def strike_told_apart(axes: Axes, jaxpr: Any) -> None:
    """Strike the axes whose tiles would have different results for all lanes."""
    if not any(record_of(eqn).kind == "across" for eqn in equations(jaxpr)):
        return
    found = True
    while found:
        asked = _results(axes, jaxpr, [NOBODY] * len(jaxpr.invars))
        found = frozenset().union(*asked)
        axes.struck.update(found)


def _along(axes: Axes, var: Any) -> Asked:
    """The axes that a value lies along."""
    if not isinstance(var, Var):
        return NOBODY
    rank = len(getattr(var.aval, "shape", ()))
    return frozenset(axes.find((var, i)) for i in range(rank))


def _results(axes: Axes, jaxpr: Any, given: Sequence[Asked]) -> list[Asked]:
    """What each result of a body depends on, besides its own lanes."""
    known: dict[Any, Asked] = dict(zip(jaxpr.invars, given, strict=True))
    read = lambda v: known.get(v, NOBODY) if isinstance(v, Var) else NOBODY
    for eqn in jaxpr.eqns:
        outs = _equation(axes, eqn, [read(v) for v in eqn.invars])
        for var, out in zip(eqn.outvars, outs, strict=True):
            known[var] = out - _along(axes, var)
    return [read(v) for v in jaxpr.outvars]


def _equation(axes: Axes, eqn: Equation, given: list[Asked]) -> Sequence[Asked]:
    name, params = eqn.primitive.name, eqn.params
    if name == "while":
        nc, nb = params["cond_nconsts"], params["body_nconsts"]
        cond, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr

        def again(carry: list[Asked]) -> list[Asked]:
            (test,) = _results(axes, cond, [*given[:nc], *carry])
            after = _results(axes, body, [*given[nc : nc + nb], *carry])
            return [test | out for out in after]

        return _repeated(axes, body.invars[nb:], given[nc + nb :], again)
    if name == "scan":
        loop = compat.loop_of(params)
        first, count = loop.num_consts, loop.num_carry
        last = first + count
        jaxpr = loop.body.jaxpr
        run = lambda carry: _results(
            axes, jaxpr, [*given[:first], *carry, *given[last:]]
        )
        after = lambda carry: run(carry)[:count]
        carry = _repeated(axes, jaxpr.invars[first:last], given[first:last], after)
        return [*carry, *run(carry)[count:]]
    if name == "cond":
        outs = [_results(axes, b.jaxpr, given[1:]) for b in params["branches"]]
        return [given[0].union(*ways) for ways in zip(*outs, strict=True)]
    every = NOBODY.union(*given)
    if record_of(eqn).kind == "across":
        every |= _along(axes, eqn.invars[0]) - {axes.find(s) for s in axes.struck}
    return [every] * len(eqn.outvars)


def _repeated(axes: Axes, variables: Any, carry: list[Asked], again: Any) -> Any:
    """What the carries of a loop depend on, after any number of rounds."""
    own = [_along(axes, v) for v in variables]
    while True:
        after = [
            (old | new) - lanes
            for old, new, lanes in zip(carry, again(carry), own, strict=True)
        ]
        if after == carry:
            return after
        carry = after
