"""common: equal equations of a body are one.

Same primitive, parameters and operands: equations have no effects, so they compute the
same value.  A conversion to the type that a value has is that value, and so is what
literals alone decide; a product with a transposed matrix is one with the matrix, along
its other dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from onescan.loop import Loop
from onescan.passes.fold import folded, unchanged, zeros
from onescan.passes.split import Split, slice_of
from onescan.passes.whiles import While, rebuilt
from onescan.primitives import record_of


def merged(
    eqns: Sequence[JaxprEqn], results: Sequence[Any]
) -> tuple[list[JaxprEqn], list[Any]]:
    """A body and what it gives, with equal equations made one."""
    same: dict[Var, Any] = {}
    seen: dict[Any, JaxprEqn] = {}
    transposed: dict[Var, Any] = {}
    kept = []

    def read(v: Any) -> Any:
        return v if isinstance(v, Literal) else same.get(v, v)

    for eqn in eqns:
        eqn = eqn.replace(invars=[read(v) for v in eqn.invars])
        value = eqn.invars[0] if _gives_back(eqn) else folded(eqn)
        if value is None:
            value = unchanged(eqn)
        if value is not None:
            same[eqn.outvars[0]] = value
            continue
        if (nothing := zeros(eqn)) is not None:
            [eqn] = nothing
        if _transposes(eqn):
            transposed[eqn.outvars[0]] = eqn.invars[0]
        if record_of(eqn).kind == "product":
            eqn = _without_transposes(eqn, transposed)
        key = _key(eqn)
        if key is not None and key in seen:
            same.update(zip(eqn.outvars, seen[key].outvars, strict=True))
            continue
        if key is not None:
            seen[key] = eqn
        kept.append(eqn)
    return kept, [read(v) for v in results]


def common(loop: Loop) -> Split | None:
    """The same for the condition and the body of a while loop."""
    parts = While.of(loop)
    cond, body = _smaller(parts.cond), _smaller(parts.body)
    if len(cond.eqns) + len(body.eqns) == len(parts.cond.eqns) + len(parts.body.eqns):
        return None
    made = rebuilt(
        loop,
        ClosedJaxpr(cond, []),
        ClosedJaxpr(body, []),
        parts.cond_consts,
        parts.body_consts,
        [True] * len(parts.carry),
    )
    return Split("simplify", made, lambda args: args, lambda args, results: results)


def _smaller(jaxpr: Jaxpr) -> Jaxpr:
    eqns, results = merged(jaxpr.eqns, jaxpr.outvars)
    live = slice_of(eqns, results, set(jaxpr.invars))
    info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    return Jaxpr([], jaxpr.invars, results, live, debug_info=info)


def _transposes(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    return name == "transpose" and tuple(eqn.params["permutation"]) == (1, 0)


def _without_transposes(eqn: JaxprEqn, transposed: dict[Var, Any]) -> JaxprEqn:
    """The same product; `transposed` matrices have their originals as values.

    A matrix has one free dimension, contracted along the other, so the dimensions
    of the result stay where they are.
    """
    (cx, cy), batch = eqn.params["dimension_numbers"]
    if any(batch) or not (len(cx) == len(cy) == 1):
        return eqn
    operands, contracted = list(eqn.invars), [cx[0], cy[0]]
    for i, v in enumerate(eqn.invars):
        if isinstance(v, Var) and v in transposed:
            operands[i], contracted[i] = transposed[v], 1 - contracted[i]
    numbers = ((contracted[0],), (contracted[1],)), batch
    params = {**eqn.params, "dimension_numbers": numbers}
    return eqn.replace(invars=operands, params=params)


def _gives_back(eqn: JaxprEqn) -> bool:
    """Whether an equation converts to the type its operand has."""
    if eqn.primitive.name != "convert_element_type" or eqn.params["sharding"]:
        return False
    operand: Any = eqn.invars[0]
    return operand.aval.dtype == eqn.params["new_dtype"]


def _key(eqn: JaxprEqn) -> Any:
    """What equal equations have in common; None where that cannot be said."""
    if eqn.effects:
        return None
    operands = tuple(
        (v.val.tobytes() if hasattr(v.val, "tobytes") else repr(v.val), str(v.aval))
        if isinstance(v, Literal)
        else v
        for v in eqn.invars
    )
    key = (
        eqn.primitive,
        operands,
        tuple(sorted(eqn.params.items(), key=lambda p: p[0])),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key
