"""What has a body of its own: branches and inner loops."""

from __future__ import annotations

from typing import Any

from onescan import compat
from onescan.loop import Equation
from onescan.primitives.axes import Axes
from onescan.primitives.record import Primitive


def _scan(eqn: Equation, axes: Axes) -> None:
    inner = compat.loop_of(eqn.params)
    jaxpr: Any = inner.body.jaxpr
    axes.visit(jaxpr)
    fixed = inner.num_consts + inner.num_carry
    for x, v in zip(eqn.invars[:fixed], jaxpr.invars[:fixed], strict=True):
        axes.join_all(v, x)
    for x, v in zip(eqn.invars[fixed:], jaxpr.invars[fixed:], strict=True):
        axes.strike(x, 0)
        for i in range(len(v.aval.shape)):
            axes.join(x, i + 1, v, i)
    carry = jaxpr.invars[inner.num_consts : fixed]
    for k, (v, out) in enumerate(zip(jaxpr.outvars, eqn.outvars, strict=True)):
        if k < inner.num_carry:
            axes.join_all(carry[k], v)
            axes.join_all(out, carry[k])
            continue
        axes.strike(out, 0)
        for i in range(len(v.aval.shape)):
            axes.join(v, i, out, i + 1)


def _while(eqn: Equation, axes: Axes) -> None:
    """The dimensions of a condition lead those of every carry, position by position.

    Each position stops when its own condition says so, and keeps its values from
    then on; that the loop goes on for others is not seen by it.
    """
    params = eqn.params
    cond, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    nc, nb = params["cond_nconsts"], params["body_nconsts"]
    axes.visit(cond)
    axes.visit(body)
    carry = eqn.invars[nc + nb :]
    for x, v in zip([*eqn.invars[:nc], *carry], cond.invars, strict=True):
        axes.join_all(v, x)
    for x, v in zip([*eqn.invars[nc : nc + nb], *carry], body.invars, strict=True):
        axes.join_all(v, x)
    (test,) = cond.outvars
    for v, w, out in zip(body.invars[nb:], body.outvars, eqn.outvars, strict=True):
        axes.join_all(v, w)
        axes.join_all(out, v)
        for i in range(len(test.aval.shape)):
            axes.join(test, i, v, i)


def _cond(eqn: Equation, axes: Axes) -> None:
    for branch in eqn.params["branches"]:
        axes.visit(branch.jaxpr)
        for x, v in zip(eqn.invars[1:], branch.jaxpr.invars, strict=True):
            axes.join_all(v, x)
        for v, out in zip(branch.jaxpr.outvars, eqn.outvars, strict=True):
            axes.join_all(out, v)


RECORDS = [
    Primitive(name="cond", kind="control", axes=_cond),
    Primitive(name="scan", kind="control", axes=_scan),
    Primitive(name="while", kind="control", axes=_while),
]
