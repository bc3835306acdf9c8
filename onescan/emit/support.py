"""What the kernel can run: a look into the rule table before anything is emitted."""

from __future__ import annotations

from math import prod
from typing import Any

from jax.extend.core import Literal

from onescan import compat
from onescan.emit import types as ty
from onescan.emit.rules import RULES
from onescan.emit.sort import LONGEST
from onescan.loop import Equation, LeaveToXla, Loop
from onescan.plan.work import equations
from onescan.primitives import ELEMENTWISE

#: a constant array inside a body is kept with the code up to this many elements
LARGEST_LITERAL = 4096


def require_supported(loop: Loop) -> None:
    """Raise `LeaveToXla`, with the reason, for a loop the kernel cannot run."""
    jaxpr = loop.body.jaxpr
    for var in [*jaxpr.invars, *jaxpr.outvars]:
        if not ty.supported(var.aval.dtype):
            raise LeaveToXla(f"{var.aval.dtype} values have no native rule")
    for eqn in equations(jaxpr):
        if reason := _reason(eqn):
            raise LeaveToXla(reason)


def _reason(eqn: Equation) -> str | None:
    name, where = eqn.primitive.name, compat.source_of(eqn)
    if name not in RULES:
        return f"`{name}` at {where} has no native rule"
    var: Any
    for var in [*eqn.invars, *eqn.outvars]:
        if not ty.supported(var.aval.dtype):
            return f"`{name}` at {where} works on {var.aval.dtype}"
        large = prod(var.aval.shape) > LARGEST_LITERAL
        if large and isinstance(var, Literal):
            return f"`{name}` at {where} reads a large constant array"
    if eqn.params.get("out_dtype") is not None:
        return f"`{name}` at {where} asks for another result type"
    if name in ELEMENTWISE and not _ranks_fit(eqn):
        return f"`{name}` at {where} mixes ranks"
    if name in CHECKS and (reason := CHECKS[name](eqn)):
        return f"`{name}` at {where} {reason}"
    return None


def _ranks_fit(eqn: Equation) -> bool:
    rank = len(eqn.outvars[0].aval.shape)
    return all(len(v.aval.shape) in (0, rank) for v in eqn.invars)


def _sort(eqn: Equation) -> str | None:
    n = eqn.invars[0].aval.shape[eqn.params["dimension"]]
    return f"is over {n} elements" if n > LONGEST else None


def _scatter(eqn: Equation) -> str | None:
    if eqn.primitive.name == "scatter" and not _replaces(eqn):
        return "applies a function"
    return None


def _replaces(eqn: Equation) -> bool:
    update = eqn.params.get("update_jaxpr")
    jaxpr = getattr(update, "jaxpr", update)
    return jaxpr is None or (not jaxpr.eqns and jaxpr.outvars[0] is jaxpr.invars[1])


def _bitcast(eqn: Equation) -> str | None:
    (x,), (out,) = eqn.invars, eqn.outvars
    same = x.aval.dtype.itemsize == out.aval.dtype.itemsize
    return None if same else "changes the width"


def _reduce_precision(eqn: Equation) -> str | None:
    bits = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    return None if min(bits) > 0 else f"asks for {bits} bits"


def _argument(eqn: Equation) -> str | None:
    return None if len(eqn.params["axes"]) == 1 else "is over several axes"


def _reshape(eqn: Equation) -> str | None:
    return None if eqn.params.get("dimensions") is None else "permutes"


def _dot(eqn: Equation) -> str | None:
    return None if eqn.params.get("out_sharding") is None else "has a sharding"


CHECKS: dict[str, Any] = {
    "argmax": _argument,
    "argmin": _argument,
    "bitcast_convert_type": _bitcast,
    "dot_general": _dot,
    "reduce_precision": _reduce_precision,
    "reshape": _reshape,
    "scatter": _scatter,
    "sort": _sort,
}
