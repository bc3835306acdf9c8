"""narrow: what is the same at many places is computed once, and spread afterwards.

In goes a loop; out comes one in which ``tanh(broadcast(x))`` is ``broadcast(tanh(x))``,
and likewise for every costly elementwise operation whose operands are all spread in the
same way.  Programs have that where they fill arrays with a number, and `jax.vmap`
where it spreads what its lanes share.

Right, because an elementwise operation gives equal results for equal operands.
"""

from __future__ import annotations

from math import prod
from typing import Any

from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Literal, Var

from onescan.loop import Equation, Loop
from onescan.passes.split import Split, parts_of, rebuilt, unchanged
from onescan.primitives import record_of


def narrow(loop: Loop) -> Split | None:
    """Compute before spreading."""
    parts = parts_of(loop)
    spread: dict[Any, JaxprEqn] = {}
    eqns: list[JaxprEqn] = []
    for eqn in parts.eqns:
        first = _spread_alike(eqn, spread)
        if first is None:
            found = [eqn]
        else:
            found = _computed_first(eqn, first, spread)
        eqns += found
        if found[-1].primitive.name == "broadcast_in_dim":
            spread[found[-1].outvars[0]] = found[-1]
    count = len(eqns) - len(parts.eqns)
    if not count:
        return None
    what = "1 operation" if count == 1 else f"{count} operations"
    return Split(
        name="narrow",
        loop=rebuilt(loop, parts.replace(eqns=tuple(eqns))),
        before=unchanged,
        after=lambda args, results: results,
        notes=(f"computed {what} once that had equal operands at many places",),
    )


def _spread_alike(eqn: Equation, spread: dict[Any, JaxprEqn]) -> JaxprEqn | None:
    """How the operands of a costly operation are spread, if they all are alike."""
    record = record_of(eqn)
    if record.kind != "elementwise" or record.cost <= 1 or len(eqn.outvars) != 1:
        return None
    arrays = [v for v in eqn.invars if v.aval.shape]
    ways = [spread.get(v) for v in arrays if not isinstance(v, Literal)]
    if not ways or len(ways) < len(arrays) or None in ways:
        return None
    first, *others = (way for way in ways if way is not None)
    if any(_way(other) != _way(first) for other in others):
        return None
    small: Any = first.invars[0]
    return first if 2 * prod(small.aval.shape) <= prod(arrays[0].aval.shape) else None


def _way(eqn: JaxprEqn) -> Any:
    operand: Any = eqn.invars[0]
    return operand.aval.shape, eqn.params["shape"], eqn.params["broadcast_dimensions"]


def _computed_first(
    eqn: JaxprEqn, way: JaxprEqn, spread: dict[Any, JaxprEqn]
) -> list[JaxprEqn]:
    """The operation on what is spread, and its result spread."""
    operands = [
        spread[v].invars[0] if isinstance(v, Var) and v in spread else v
        for v in eqn.invars
    ]
    result: Any = eqn.outvars[0]
    small: Any = way.invars[0]
    once = Var(ShapedArray(small.aval.shape, result.aval.dtype))
    return [
        eqn.replace(invars=operands, outvars=[once]),
        way.replace(invars=[once], outvars=[result]),
    ]
