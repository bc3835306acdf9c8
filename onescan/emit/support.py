"""What the kernel can run: a look into the rule table before anything is emitted."""

from __future__ import annotations

import numpy as np
from jax.extend.core import Jaxpr

from onescan import compat
from onescan.emit import types as ty
from onescan.emit.rules import RULES
from onescan.loop import Atom, Equation, LeaveToXla, Loop
from onescan.passes.complex_rules import RULES as COMPLEX
from onescan.passes.constants import is_large_literal
from onescan.plan.work import equations
from onescan.primitives import ELEMENTWISE, is_refused, record_of


def require_supported(loop: Loop, alone: bool = True) -> None:
    """Raise `LeaveToXla`, with the reason, for a loop the kernel cannot run.

    `alone` is whether one thread has all of a matrix.
    """
    jaxpr = loop.body.jaxpr
    _require_pairs(jaxpr)
    for var in [*jaxpr.invars, *jaxpr.outvars]:
        if not ty.supported(var.aval.dtype):
            raise LeaveToXla(f"{var.aval.dtype} values have no native rule")
    for eqn in equations(jaxpr):
        if reason := _reason(eqn, alone):
            raise LeaveToXla(reason)


def _require_pairs(jaxpr: Jaxpr) -> None:
    """Raise with what kept complex numbers from becoming pairs, if that is plain."""
    found = [eqn for eqn in equations(jaxpr) if _is_complex(eqn)]
    unknown = [eqn for eqn in found if eqn.primitive.name not in COMPLEX]
    kinds = ("library", "matrix", "update")
    refused = [e for e in found if record_of(e).kind in kinds and is_refused(e)]
    for eqn in [*unknown, *refused]:
        raise LeaveToXla(_unknown(eqn, "has no native rule for complex numbers"))


def _reason(eqn: Equation, alone: bool) -> str | None:
    name, where = eqn.primitive.name, compat.source_of(eqn)
    if name not in RULES:
        return _unknown(eqn, "has no native rule")
    var: Atom
    for var in [*eqn.invars, *eqn.outvars]:
        if not ty.supported(var.aval.dtype):
            return f"`{name}` at {where} works on {var.aval.dtype}"
        if is_large_literal(var):
            return f"`{name}` at {where} reads a large constant array"
    if eqn.params.get("out_dtype") is not None:
        return f"`{name}` at {where} asks for another result type"
    if name in ELEMENTWISE and not _ranks_fit(eqn):
        return f"`{name}` at {where} mixes ranks"
    record = record_of(eqn)
    for refuses in (record.refuses, record.refuses_alone if alone else None):
        if refuses is not None and (reason := refuses(eqn)):
            return f"`{name}` at {where} {reason}"
    return None


def _is_complex(eqn: Equation) -> bool:
    variables: list[Atom] = [*eqn.invars, *eqn.outvars]
    return any(np.dtype(v.aval.dtype).kind == "c" for v in variables)


def _unknown(eqn: Equation, otherwise: str) -> str:
    refuses = record_of(eqn).refuses
    reason = (refuses(eqn) if refuses else None) or otherwise
    return f"`{eqn.primitive.name}` at {compat.source_of(eqn)} {reason}"


def _ranks_fit(eqn: Equation) -> bool:
    rank = len(eqn.outvars[0].aval.shape)
    return all(len(v.aval.shape) in (0, rank) for v in eqn.invars)
