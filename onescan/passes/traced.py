"""A function traced into a body: equations in the place of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend.core import JaxprEqn, Literal

from onescan.passes.inline import expand


def traced(
    apply: Callable[..., Sequence[Any]], operands: list[Any], eqn: JaxprEqn
) -> list[JaxprEqn] | None:
    """A function of these operands as equations that give the results of `eqn`.

    None where it hands an operand through, or a constant: no equation gives that.
    """
    eqns: list[JaxprEqn] = []
    given = expand(apply, operands, eqn, eqns)
    made = {v for each in eqns for v in each.outvars}
    if any(isinstance(v, Literal) or v not in made for v in given):
        return None
    names: dict[Any, Any] = dict(zip(given, eqn.outvars, strict=True))
    if len(names) < len(given):
        return None

    def renamed(atoms: Sequence[Any]) -> list[Any]:
        return [v if isinstance(v, Literal) else names.get(v, v) for v in atoms]

    return [
        each.replace(invars=renamed(each.invars), outvars=renamed(each.outvars))
        for each in eqns
    ]
