"""While loops taken apart, and put together again; carries that never change leave.

A value that a while loop carries and gives back as it is (Diffrax carries the memory
that it saves to, where it saves nothing) is a constant of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from onescan import compat
from onescan.loop import Loop
from onescan.passes.split import Split, Values, reads


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
    kept: Sequence[bool],
) -> Loop:
    """A while loop with another condition and body, and the carries that it kept."""
    made = compat.while_loop_of(
        {
            "cond_jaxpr": _without_constants(cond),
            "body_jaxpr": _without_constants(body),
            "cond_nconsts": cond_consts,
            "body_nconsts": body_consts,
        }
    )
    return made.replace(
        name=loop.name,
        source=loop.source,
        pairs=_pairs(loop, made, kept),
    )


def _pairs(old: Loop, new: Loop, kept: Sequence[bool]) -> frozenset[tuple[Any, Any]]:
    """The parts of complex numbers among the carries, by their new names."""
    names: dict[Any, Any] = {}
    for before, after in (
        (old.body.jaxpr.invars[old.num_consts :], new.body.jaxpr.invars),
        (old.body.jaxpr.outvars, new.body.jaxpr.outvars),
    ):
        there = after[len(after) - new.num_carry :]
        names.update(zip(_those(before, kept), there, strict=False))
    return frozenset(
        (names[re], names[im]) for re, im in old.pairs if re in names and im in names
    )


def _without_constants(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same body, with the arrays that were traced into it as literals."""
    jaxpr = closed.jaxpr
    if not jaxpr.constvars:
        return closed
    pairs = zip(jaxpr.constvars, closed.consts, strict=True)
    known: dict[Any, Any] = {v: Literal(value, v.aval) for v, value in pairs}
    replaced = lambda atoms: [
        known.get(v, v) if isinstance(v, Var) else v for v in atoms
    ]
    eqns = [eqn.replace(invars=replaced(eqn.invars)) for eqn in jaxpr.eqns]
    info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    outs = replaced(jaxpr.outvars)
    return ClosedJaxpr(Jaxpr([], jaxpr.invars, outs, eqns, debug_info=info), [])


def unchanged(loop: Loop) -> Split | None:
    """The carries that every round gives back as they are, as constants.

    Constants that nobody reads are left out.
    """
    parts = While.of(loop)
    pairs = zip(parts.carry, parts.body.outvars, strict=True)
    same = [old is new for old, new in pairs]
    changing = [not s for s in same]
    of_cond = _Constants.of(parts.cond, parts.cond_consts, same, [True])
    of_body = _Constants.of(parts.body, parts.body_consts, same, changing)
    if not any(same) and of_cond.all_read and of_body.all_read:
        return None
    counts = of_cond.count, of_body.count
    smaller = rebuilt(loop, of_cond.jaxpr, of_body.jaxpr, *counts, changing)

    def before(args: Values) -> Values:
        first, second, carry = parts.split(args)
        return [
            *_those([*first, *carry], of_cond.read),
            *_those([*second, *carry], of_body.read),
            *_those(carry, changing),
        ]

    def after(args: Values, results: Values) -> Values:
        changed = iter(results)
        _, _, carry = parts.split(args)
        return [x if s else next(changed) for x, s in zip(carry, same, strict=True)]

    return Split("unchanged", smaller, before, after)


@dataclass(frozen=True, eq=False)
class _Constants:
    """A body or condition with carries that do not change among its constants."""

    jaxpr: ClosedJaxpr
    read: list[bool]  # by constant and carry: whether it is a constant that is read
    all_read: bool

    @staticmethod
    def of(
        jaxpr: Jaxpr, consts: int, same: Sequence[bool], results: Sequence[bool]
    ) -> _Constants:
        outvars = _those(jaxpr.outvars, results)
        wanted = reads(jaxpr.eqns, outvars)
        fixed = [*[True] * consts, *same]
        read = [f and v in wanted for f, v in zip(fixed, jaxpr.invars, strict=True)]
        changing = _those(jaxpr.invars[consts:], [not s for s in same])
        invars = [*_those(jaxpr.invars, read), *changing]
        info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
        smaller = Jaxpr([], invars, outvars, jaxpr.eqns, debug_info=info)
        return _Constants(ClosedJaxpr(smaller, []), read, all(read[:consts]))

    @property
    def count(self) -> int:
        return sum(self.read)


def _those(values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    return [v for v, w in zip(values, wanted, strict=True) if w]
