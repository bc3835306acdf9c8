"""lifted: what every step of a loop inside computes alike is computed before it.

In goes a body with loops inside, such as fifty sweeps of an iteration whose matrix
follows from the carry; out comes one that makes the matrix once, in front of them.  At
any depth: what leaves a loop may leave the next one, too.  XLA does the same.

Right, because it has no effects and is given the same operands in every step.  A loop
inside that runs no step needs nothing of it; so what might run for long itself, a loop
or a branch, stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from onescan import compat
from onescan.loop import Loop, nbytes
from onescan.passes.hoist import is_worth_keeping, numbers
from onescan.passes.split import (
    Split,
    parts_of,
    rebuilt,
    slice_of,
    unchanged,
    variables,
)
from onescan.passes.worth import is_movable

#: bytes that wait for the steps of a loop inside
MOST = 1 << 20


def lifted(loop: Loop) -> Split | None:
    """Take what does not change out of the loops inside."""
    parts = parts_of(loop)
    eqns = _all(parts.eqns)
    if len(eqns) == len(parts.eqns) and all(map(_same, eqns, parts.eqns)):
        return None
    return Split(
        name="lifted",
        loop=rebuilt(loop, parts.replace(eqns=tuple(eqns))),
        before=unchanged,
        after=lambda args, results: results,
        notes=("computed once for loops inside what their steps compute alike",),
    )


def _same(one: JaxprEqn, other: JaxprEqn) -> bool:
    return one is other


def _all(eqns: Sequence[JaxprEqn]) -> list[JaxprEqn]:
    """The equations of a body, with others in front of the loops among them."""
    found = []
    for eqn in eqns:
        if eqn.primitive.name == "scan":
            found += _of_scan(eqn)
        elif eqn.primitive.name == "while":
            found += _of_while(eqn)
        elif eqn.primitive.name == "cond":
            found.append(_of_branches(eqn))
        else:
            found.append(eqn)
    return found


def _of_scan(eqn: JaxprEqn) -> list[JaxprEqn]:
    loop = compat.loop_of(eqn.params)
    count = loop.num_consts
    before, given, body = _apart(loop.body, list(eqn.invars[:count]))
    if body is loop.body:
        return [eqn]
    smaller = loop.replace(body=body, num_consts=count + len(given))
    params = {**eqn.params, **compat.scan_params(smaller)}
    invars = [*eqn.invars[:count], *given, *eqn.invars[count:]]
    return [*before, eqn.replace(invars=invars, params=params)]


def _of_while(eqn: JaxprEqn) -> list[JaxprEqn]:
    params = eqn.params
    first, count = params["cond_nconsts"], params["body_nconsts"]
    last = first + count
    before, given, body = _apart(params["body_jaxpr"], list(eqn.invars[first:last]))
    if body is params["body_jaxpr"]:
        return [eqn]
    changed = {"body_jaxpr": body, "body_nconsts": count + len(given)}
    invars = [*eqn.invars[:last], *given, *eqn.invars[last:]]
    return [*before, eqn.replace(invars=invars, params={**params, **changed})]


def _of_branches(eqn: JaxprEqn) -> JaxprEqn:
    branches = eqn.params["branches"]
    bodies = tuple(_body(b, b.jaxpr.invars, _all(b.jaxpr.eqns)) for b in branches)
    if all(body is b for body, b in zip(bodies, branches, strict=True)):
        return eqn
    return eqn.replace(params={**eqn.params, "branches": bodies})


def _apart(
    closed: ClosedJaxpr, given: list[Any]
) -> tuple[list[JaxprEqn], list[Any], ClosedJaxpr]:
    """Equations in front of a loop, what they give to it, and the rest of its body.

    Its first inputs are constants, which are `given` by the body around it.
    """
    if closed.consts:
        return [], [], closed
    jaxpr = closed.jaxpr
    eqns = _all(jaxpr.eqns)
    consts = list(jaxpr.invars[: len(given)])
    made = _invariant(eqns, consts, jaxpr)
    if not made:
        return [], [], _body(closed, jaxpr.invars, eqns)
    kept = slice_of(eqns, jaxpr.outvars, {*jaxpr.invars, *made})
    names: dict[Any, Any] = dict(zip(consts, given, strict=True))
    before = []
    for eqn in slice_of(eqns, made, consts):
        outvars = [Var(v.aval) for v in eqn.outvars]
        invars = [v if isinstance(v, Literal) else names[v] for v in eqn.invars]
        names.update(zip(eqn.outvars, outvars, strict=True))
        before.append(eqn.replace(invars=invars, outvars=outvars))
    invars = [*consts, *made, *jaxpr.invars[len(consts) :]]
    return before, [names[v] for v in made], _body(closed, invars, kept)


def _invariant(
    eqns: Sequence[JaxprEqn], consts: Sequence[Any], jaxpr: Jaxpr
) -> list[Any]:
    """What equations make of constants alone, and is worth keeping for all steps."""
    fixed, worth = set[Any](consts), set[Any]()
    for eqn in eqns:
        if is_movable(eqn) and fixed.issuperset(variables(eqn.invars)):
            fixed.update(eqn.outvars)
            worth.update(eqn.outvars if is_worth_keeping(eqn) else ())
    worth -= numbers(eqns)
    kept = slice_of(eqns, jaxpr.outvars, {*jaxpr.invars, *worth})
    read = {v for eqn in kept for v in variables(eqn.invars)}
    read.update(variables(jaxpr.outvars))
    made = [v for eqn in eqns for v in eqn.outvars if v in worth and v in read]
    return made if nbytes([v.aval for v in made]) <= MOST else []


def _body(
    closed: ClosedJaxpr, invars: Sequence[Any], eqns: list[JaxprEqn]
) -> ClosedJaxpr:
    """The same body with other inputs and equations, if they are others."""
    jaxpr = closed.jaxpr
    if len(eqns) == len(jaxpr.eqns) and all(map(_same, eqns, jaxpr.eqns)):
        return closed
    info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    made = Jaxpr(jaxpr.constvars, invars, jaxpr.outvars, eqns, debug_info=info)
    return ClosedJaxpr(made, closed.consts)
