"""Choices that are known late in a step, and that the next step waits for.

``where(c.mean() > 0, c / 2, c + x)`` can be had by a selection, which waits for the
mean, or by a branch, whose outcome a processor guesses: it goes on with the next step,
and comes back where it was wrong.  Right guesses save all of the wait; wrong ones cost
about what the wait does.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Jaxpr, Literal, Var

from onescan import compat
from onescan.loop import Equation, Loop
from onescan.primitives import record_of

#: cycles that a choice is known later than what is chosen from, for a guess to be worth
#: it where every second one is wrong (a Metropolis step of one number, which knows
#: after 20, takes 1.3 times as long by guesses; choices by a mean of four, 0.7 times)
LATE = 24
#: cycles of an addition, or comparison, of floating-point numbers
EACH = 4
#: cycles by which a number reaches the mask that chooses whole vectors
MASK = 8
#: cycles for each time that a vector is folded in half, and its numbers at most
FOLD, WIDEST = 6, 16
#: cycles of whatever is made of loops
LONG = 100
#: numbers that are chosen at once, at most: more of them take longer than the wait
MOST = 128
#: what has the only number of its operand
SAME = frozenset({"broadcast_in_dim", "copy", "copy_p", "reshape", "squeeze"})


def late_choices(loop: Loop) -> frozenset[int]:
    """The selections that a loop, or one inside, had better guess, by identity."""
    jaxpr, first = loop.body.jaxpr, loop.num_consts
    carry: Any = jaxpr.invars[first : first + loop.num_carry]
    carried = _behind(jaxpr, jaxpr.outvars[: loop.num_carry])
    when: dict[Any, int] = dict.fromkeys(carry, 0)  # of what changes from step to step
    alone: set[Any] = set()  # what is one number, everywhere
    found: set[int] = set()
    for eqn in jaxpr.eqns:
        found.update(*(late_choices(inner) for inner in _loops_in(eqn)))
        if not eqn.outvars:
            continue
        out: Any = eqn.outvars[0]
        read: list[Any] = [v for v in eqn.invars if isinstance(v, Var)]
        if prod(out.aval.shape) == 1 or (
            eqn.primitive.name in SAME and alone.issuperset(read)
        ):
            alone.add(out)
        times = [when[v] for v in read if v in when]
        if not times:
            continue
        when |= dict.fromkeys(eqn.outvars, max(times) + _cycles(eqn))
        if out in carried and _is_choice(eqn) and alone.issuperset(read[:1]):
            which, *cases = (
                when.get(v, 0) if isinstance(v, Var) else 0 for v in eqn.invars
            )
            mask = MASK if prod(out.aval.shape) > 1 else 0
            if which + mask - min(cases) >= LATE:
                found.add(id(eqn))
    return frozenset(found)


def _behind(jaxpr: Jaxpr, outs: Any) -> set[Any]:
    """What some results are made of."""
    found = {v for v in outs if isinstance(v, Var)}
    for eqn in reversed(jaxpr.eqns):
        if not found.isdisjoint(eqn.outvars):
            found.update(v for v in eqn.invars if isinstance(v, Var))
    return found


def _loops_in(eqn: Equation) -> Iterator[Loop]:
    if eqn.primitive.name == "scan":
        yield compat.loop_of(eqn.params)
    elif eqn.primitive.name == "while":
        yield compat.while_loop_of(eqn.params).in_steps()


def _is_choice(eqn: Equation) -> bool:
    """Whether it is between two values that registers hold."""
    if eqn.primitive.name != "select_n" or len(eqn.invars) != 3:
        return False
    which: Any = eqn.invars[0]
    if isinstance(which, Literal) or which.aval.dtype != bool:
        return False
    return prod(eqn.outvars[0].aval.shape) <= MOST


def _cycles(eqn: Equation) -> int:
    """From when its operands are there to when its results are."""
    record = record_of(eqn)
    first: Any = eqn.invars[0]
    each = EACH if jnp.issubdtype(first.aval.dtype, jnp.inexact) else 1
    if record.kind == "elementwise":
        return each * record.cost
    if record.kind in ("reduction", "product"):
        sizes = (prod(v.aval.shape) for v in (first, eqn.outvars[0]))
        terms = next(sizes) // max(next(sizes), 1)
        return EACH + FOLD * (min(max(terms, 1), WIDEST) - 1).bit_length()
    return 0 if record.moves else LONG if record.kind == "control" else EACH
