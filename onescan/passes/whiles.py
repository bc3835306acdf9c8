"""While loops taken apart, and put together again; carries that never change leave.

A value that a while loop carries and gives back as it is (Diffrax carries where it
saves to, and whether it is done with it) is a constant of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Var

from onescan import compat
from onescan.loop import Loop
from onescan.passes.split import Split, Values


@dataclass(frozen=True, eq=False)
class While:
    """The condition and the body of a while loop, each with constants of its own."""

    cond: Jaxpr
    body: Jaxpr
    cond_consts: int
    body_consts: int

    @staticmethod
    def of(loop: Loop) -> While:
        params = loop.whole.params
        return While(
            params["cond_jaxpr"].jaxpr,
            params["body_jaxpr"].jaxpr,
            params["cond_nconsts"],
            params["body_nconsts"],
        )

    @property
    def carry(self) -> list[Any]:
        """What the body knows the carries as."""
        return list(self.body.invars[self.body_consts :])

    @property
    def tested(self) -> list[Any]:
        """What the condition knows them as."""
        return list(self.cond.invars[self.cond_consts :])

    def split(self, args: Values) -> tuple[Values, Values, Values]:
        """The arguments of the loop: constants of the condition, of the body, carry."""
        first, second = self.cond_consts, self.cond_consts + self.body_consts
        return args[:first], args[first:second], args[second:]


def rebuilt(
    loop: Loop,
    cond: ClosedJaxpr,
    body: ClosedJaxpr,
    cond_consts: int,
    body_consts: int,
) -> Loop:
    """A while loop with another condition and body."""
    made = compat.while_loop_of(
        {
            "cond_jaxpr": cond,
            "body_jaxpr": body,
            "cond_nconsts": cond_consts,
            "body_nconsts": body_consts,
        }
    )
    return made.replace(name=loop.name, source=loop.source)


def unchanged(loop: Loop) -> Split | None:
    """The carries that every round gives back as they are, as constants."""
    parts = While.of(loop)
    same = [
        old is new for old, new in zip(parts.carry, parts.body.outvars, strict=True)
    ]
    if not any(same):
        return None
    count = sum(same)
    smaller = rebuilt(
        loop,
        _with_first(parts.cond, parts.cond_consts, parts.tested, same),
        _with_first(parts.body, parts.body_consts, parts.carry, same, _not(same)),
        parts.cond_consts + count,
        parts.body_consts + count,
    )

    def before(args: Values) -> Values:
        of_cond, of_body, carry = parts.split(args)
        fixed = _those(carry, same)
        return [*of_cond, *fixed, *of_body, *fixed, *_those(carry, _not(same))]

    def after(args: Values, results: Values) -> Values:
        changed = iter(results)
        _, _, carry = parts.split(args)
        return [x if s else next(changed) for x, s in zip(carry, same, strict=True)]

    return Split("unchanged", smaller, before, after)


def _with_first(
    jaxpr: Jaxpr,
    consts: int,
    carry: list[Var],
    same: Sequence[bool],
    results: Sequence[bool] = (True,),
) -> ClosedJaxpr:
    """A body that takes some of its carries among its constants."""
    invars = [
        *jaxpr.invars[:consts],
        *_those(carry, same),
        *_those(carry, _not(same)),
    ]
    outvars = _those(jaxpr.outvars, results)
    debug_info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    return ClosedJaxpr(
        Jaxpr([], invars, outvars, jaxpr.eqns, debug_info=debug_info), []
    )


def _those(values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    return [v for v, w in zip(values, wanted, strict=True) if w]


def _not(flags: Sequence[bool]) -> list[bool]:
    return [not flag for flag in flags]
