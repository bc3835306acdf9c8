"""Counted: while loops that end after a few rounds whatever they compute.

A loop that goes on `while i < 7 and ...`, adds 1 to `i` in every round and begins with
an `i` that is 0 or 1 has at most seven rounds, and in each of them `i` is a number that
is known before anything runs (Diffrax walks over the stages of a Runge-Kutta method so,
and leaves the first one out where it has its result).  Written one after the other they
address what they carry by constants, so that it can stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import Jaxpr, Literal, Var

from onescan.loop import Equation

#: rounds that are written one after the other
MOST = 8


@dataclass(frozen=True)
class Counted:
    """Which carry counts, and the number that ends the loop."""

    carry: int
    end: int


def counted(parent: Jaxpr, eqn: Equation) -> Counted | None:
    """The counter of a while loop in a body, if its rounds are few and it ends them."""
    cond, body = eqn.params["cond_jaxpr"].jaxpr, eqn.params["body_jaxpr"].jaxpr
    nc, nb = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    if cond.outvars[0].aval.shape:
        return None
    for test in _needed(cond, cond.outvars[0]):
        if test.primitive.name != "lt" or not _is_number(test.invars[1]):
            continue
        if test.invars[0] not in cond.invars[nc:]:
            continue
        k, end = cond.invars[nc:].index(test.invars[0]), int(test.invars[1].val)
        first = _numbers(parent, eqn.invars[nc + nb + k])
        within = first and min(first) >= 0 and end <= MOST
        if within and _counts(body, body.invars[nb + k], body.outvars[k]):
            return Counted(k, end)
    return None


def _producer(jaxpr: Jaxpr, var: Any) -> Any:
    made = (eqn for eqn in jaxpr.eqns if any(v is var for v in eqn.outvars))
    return next(made, None)


def _needed(jaxpr: Jaxpr, var: Any) -> list[Any]:
    """The equations whose results must all be true for a flag to be."""
    eqn = _producer(jaxpr, var) if isinstance(var, Var) else None
    if eqn is None:
        return []
    name = eqn.primitive.name
    if name == "and":
        return [e for v in eqn.invars for e in _needed(jaxpr, v)]
    same = name == "convert_element_type" and eqn.invars[0].aval.dtype == np.bool_
    if same or (name.startswith("reduce_") and not eqn.invars[0].aval.shape):
        return _needed(jaxpr, eqn.invars[0])
    return [eqn]


def _counts(body: Jaxpr, before: Any, after: Any) -> bool:
    """Whether a carry is one more after each round."""
    eqn = _producer(body, after)
    if eqn is None or eqn.primitive.name != "add":
        return False
    x, one = eqn.invars
    return x is before and _is_number(one) and int(one.val) == 1


def _numbers(jaxpr: Jaxpr, var: Any) -> list[int]:
    """The numbers that a value can be, if it is a choice of literals."""
    if isinstance(var, Literal):
        return [int(var.val)] if _is_number(var) else []
    eqn = _producer(jaxpr, var)
    if eqn is None or eqn.primitive.name != "select_n":
        return []
    cases = [_numbers(jaxpr, v) for v in eqn.invars[1:]]
    return [n for case in cases for n in case] if all(cases) else []


def _is_number(atom: Any) -> bool:
    if not isinstance(atom, Literal):
        return False
    kind: Any = atom.aval
    return not kind.shape and np.issubdtype(kind.dtype, np.integer)
