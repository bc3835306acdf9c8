"""A function traced into a body: equations in the place of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import JaxprEqn, Literal, Var

from onescan.loop import Atom


def type_of(var: Atom) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype)


def traced(
    apply: Callable[..., Sequence[Any]], operands: Sequence[Any], results: Sequence[Any]
) -> list[JaxprEqn] | None:
    """A function as equations on these operands that give `results`.

    None where it hands an operand through, or a constant: no equation gives that.
    """
    free = [v for v in operands if isinstance(v, Var)]

    def call(*values: Any) -> Any:
        given = iter(values)
        return apply(*(next(given) if isinstance(v, Var) else v.val for v in operands))

    closed: Any = jax.make_jaxpr(call)(*map(type_of, free))
    jaxpr, made = closed.jaxpr, {v for eqn in closed.jaxpr.eqns for v in eqn.outvars}
    given = [v for v in jaxpr.outvars if isinstance(v, Var) and v in made]
    if closed.consts or len(set(given)) < len(results):
        return None
    names = dict(zip(jaxpr.invars, free, strict=True))
    names.update(zip(given, results, strict=True))
    return [
        eqn.replace(
            invars=[
                v if isinstance(v, Literal) else names.get(v, v) for v in eqn.invars
            ],
            outvars=[names.get(v, v) for v in eqn.outvars],
        )
        for eqn in jaxpr.eqns
    ]
