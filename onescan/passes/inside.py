"""inside: loops inside a loop are rewritten, too.

In goes a loop; out comes the same in which the bodies of the loops inside, at any depth
and in branches as well, have been through other passes: by `in_place`, the gradient of
a table that is filled by loops inside a loop adds a few elements to the table, and not
a whole table of zeros with a few elements in it; so do updates that may not count, by
`masked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from onescan import compat
from onescan.loop import Loop
from onescan.passes.in_place import in_place
from onescan.passes.masked import masked
from onescan.passes.split import (
    Pass,
    Split,
    improved,
    parts_of,
    rebuilt,
    unchanged,
)


def inside(loop: Loop, passes: Sequence[Pass] = (in_place, masked)) -> Split | None:
    """Rewrite the bodies of the loops inside."""
    parts = parts_of(loop)
    eqns = tuple(_rewritten(eqn, passes) for eqn in parts.eqns)
    if all(new is old for new, old in zip(eqns, parts.eqns, strict=True)):
        return None
    return Split(
        name="inside",
        loop=rebuilt(loop, parts.replace(eqns=eqns)),
        before=unchanged,
        after=lambda args, results: results,
    )


def _rewritten(eqn: JaxprEqn, passes: Sequence[Pass]) -> JaxprEqn:
    """The same equation; of a loop or a branch, with what is better inside."""
    name, params, changed = eqn.primitive.name, eqn.params, {}
    if name == "scan":
        changed = _body("jaxpr", params, compat.loop_of(params), passes)
    elif name == "while":
        steps = compat.while_loop_of(params).in_steps()
        changed = _body("body_jaxpr", params, steps, passes)
    elif name == "cond":
        branches = tuple(_branch(b, passes) for b in params["branches"])
        pairs = zip(branches, params["branches"], strict=True)
        changed = {"branches": branches} if any(a is not b for a, b in pairs) else {}
    return eqn.replace(params={**params, **changed}) if changed else eqn


def _body(
    name: str, params: dict[str, Any], loop: Loop, passes: Sequence[Pass]
) -> dict[str, Any]:
    """The parameter that holds the body of a loop, if it could be made better."""
    if params[name].consts:
        return {}
    splits = improved(loop, (partial(inside, passes=passes), *passes))
    return {name: splits[-1].loop.body} if splits else {}


def _branch(closed: ClosedJaxpr, passes: Sequence[Pass]) -> ClosedJaxpr:
    jaxpr = closed.jaxpr
    eqns = [_rewritten(eqn, passes) for eqn in jaxpr.eqns]
    if all(new is old for new, old in zip(eqns, jaxpr.eqns, strict=True)):
        return closed
    made = Jaxpr(
        jaxpr.constvars, jaxpr.invars, jaxpr.outvars, eqns, debug_info=jaxpr.debug_info
    )
    return ClosedJaxpr(made, closed.consts)
