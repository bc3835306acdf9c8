"""inside: loops inside a loop update arrays where they lie, too.

In goes a loop; out comes the same in which the bodies of the loops inside, at any depth
and in branches as well, have been through `in_place`: the gradient of a table that is
filled by loops inside a loop adds a few elements to the table, and not a whole table of
zeros with a few elements in it.
"""

from __future__ import annotations

from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from onescan import compat
from onescan.loop import Loop
from onescan.passes.in_place import in_place
from onescan.passes.split import Split, improved, parts_of, rebuilt, unchanged


def inside(loop: Loop) -> Split | None:
    """Rewrite the bodies of the loops inside."""
    parts = parts_of(loop)
    eqns = tuple(map(_rewritten, parts.eqns))
    if all(new is old for new, old in zip(eqns, parts.eqns, strict=True)):
        return None
    return Split(
        name="inside",
        loop=rebuilt(loop, parts.replace(eqns=eqns)),
        before=unchanged,
        after=lambda args, results: results,
    )


def _rewritten(eqn: JaxprEqn) -> JaxprEqn:
    """The same equation; of a loop or a branch, with what is better inside."""
    name, params, changed = eqn.primitive.name, eqn.params, {}
    if name == "scan":
        changed = _body("jaxpr", params, compat.loop_of(params))
    elif name == "while":
        changed = _body("body_jaxpr", params, compat.while_loop_of(params).in_steps())
    elif name == "cond":
        branches = tuple(map(_branch, params["branches"]))
        pairs = zip(branches, params["branches"], strict=True)
        changed = {"branches": branches} if any(a is not b for a, b in pairs) else {}
    return eqn.replace(params={**params, **changed}) if changed else eqn


def _body(name: str, params: dict[str, Any], loop: Loop) -> dict[str, Any]:
    """The parameter that holds the body of a loop, if it could be made better."""
    if params[name].consts:
        return {}
    splits = improved(loop, (inside, in_place))
    return {name: splits[-1].loop.body} if splits else {}


def _branch(closed: ClosedJaxpr) -> ClosedJaxpr:
    jaxpr = closed.jaxpr
    eqns = list(map(_rewritten, jaxpr.eqns))
    if all(new is old for new, old in zip(eqns, jaxpr.eqns, strict=True)):
        return closed
    made = Jaxpr(
        jaxpr.constvars, jaxpr.invars, jaxpr.outvars, eqns, debug_info=jaxpr.debug_info
    )
    return ClosedJaxpr(made, closed.consts)
