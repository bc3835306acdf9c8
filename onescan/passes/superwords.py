"""superwords: scalars that wait for the same function go through it side by side.

In goes a body with ``sin(a)`` and ``sin(b)`` of numbers that do not need each other, as
the slope of a pendulum has.  Out comes one with the sines of a vector that both are put
into.  A processor computes four of them in the time of one (Larsen and Amarasinghe,
"Exploiting superword level parallelism", 2000).

Right, because a function of each element is the same in a vector; and equations keep
their order but for what a function has to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal, Var

from onescan import compat
from onescan.loop import Equation, Loop
from onescan.passes.inline import expand
from onescan.passes.split import Split, parts_of, rebuilt, unchanged
from onescan.primitives import record_of

#: operations from which a function is worth the way into a vector and out of it
DEAR = 12
#: numbers of a vector that every processor has, and how many of them are worth it: two
#: of nine functions are faster alone, on a Neoverse N1
WIDTH, FEWEST = 4, 3
#: numbers that go through a function at a time, at most
MOST = 16
#: those that are quick for small numbers alone (three of them take 19 ns, and 29 in a
#: vector), and from how many of them in a step on they are in each other's way
QUICK, MANY = frozenset({"sin", "cos"}), 8


def superwords(loop: Loop) -> Split | None:
    """Put scalars side by side where they go through the same function."""
    parts = parts_of(loop)
    levels = _levels(parts.eqns)
    groups: dict[Any, list[JaxprEqn]] = defaultdict(list)
    for eqn in parts.eqns:
        if _is_dear(eqn):
            params = tuple(sorted(eqn.params.items(), key=str))
            aval: Any = eqn.outvars[0].aval
            kind = eqn.primitive.name, str(params), aval.dtype
            groups[levels[id(eqn)], kind].append(eqn)
    quick = sum(eqn.primitive.name in QUICK for g in groups.values() for eqn in g)
    words = [g[k : k + MOST] for g in groups.values() for k in range(0, len(g), MOST)]
    taken = {
        id(eqn): word
        for word in words
        if len(word) >= FEWEST
        and (quick >= MANY or word[0].primitive.name not in QUICK)
        for eqn in word
    }
    if not taken:
        return None
    eqns = _rescheduled(parts.eqns, taken)
    return Split(
        name="superwords",
        loop=rebuilt(loop, parts.replace(eqns=tuple(eqns))),
        before=unchanged,
        after=lambda args, results: results,
        notes=(f"computed {len(taken)} functions of scalars side by side",),
    )


def _rescheduled(
    eqns: Sequence[JaxprEqn], taken: dict[int, list[JaxprEqn]]
) -> list[JaxprEqn]:
    """Groups where their first equation stood, behind all that they wait for."""
    makers = {v: eqn for eqn in eqns for v in eqn.outvars}
    done: set[int] = set()
    order: list[JaxprEqn] = []
    for first in eqns:
        waiting = [first]
        while waiting:
            eqn = waiting[-1]
            group = taken.get(id(eqn), [eqn])
            needed = [
                makers[v]
                for member in group
                for v in member.invars
                if isinstance(v, Var) and v in makers and id(makers[v]) not in done
            ]
            if id(eqn) in done:
                waiting.pop()
            elif needed:
                waiting += needed
            else:
                waiting.pop()
                done.update(map(id, group))
                order += group if len(group) == 1 else _together(group)
    return order


def _levels(eqns: Sequence[JaxprEqn]) -> dict[int, int]:
    """By the `id` of an equation: how many dear ones it waits for, one by one."""
    behind: dict[Any, int] = defaultdict(int)
    levels = {}
    for eqn in eqns:
        level = max((behind[v] for v in eqn.invars if isinstance(v, Var)), default=0)
        levels[id(eqn)] = level
        behind.update(dict.fromkeys(eqn.outvars, level + _is_dear(eqn)))
    return levels


def _is_dear(eqn: Equation) -> bool:
    """Whether an equation is a function of one scalar that takes long."""
    record = record_of(eqn)
    if record.kind != "elementwise" or record.cost < DEAR or len(eqn.invars) != 1:
        return False
    return not isinstance(eqn.invars[0], Literal) and not eqn.outvars[0].aval.shape


def _together(group: list[JaxprEqn]) -> list[JaxprEqn]:
    """The equations of a group as one on vectors."""

    def apply(*xs: Any) -> list[Any]:
        spare = -len(xs) % WIDTH
        vector = jnp.stack([*xs, *xs[:1] * spare])
        (values,) = compat.bind(group[0], [vector])
        return [values[k] for k in range(len(xs))]

    eqns: list[JaxprEqn] = []
    given = expand(apply, [eqn.invars[0] for eqn in group], group[0], eqns)
    names = dict(zip(given, (eqn.outvars[0] for eqn in group), strict=True))
    return [eqn.replace(outvars=[names.get(v, v) for v in eqn.outvars]) for eqn in eqns]
