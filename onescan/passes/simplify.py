"""simplify: nothing twice, nothing unused, nothing carried that does not change.

In goes a loop; out comes one in which

* equal equations are one (same primitive, parameters and operands: equations have
  no effects, so they compute the same value), and a conversion to the type that a
  value has is that value, and so is what literals alone decide;
* a product with a transposed matrix is one with the matrix, along its other
  dimension;
* a carry that every step hands on unchanged is a constant;
* a y that is an x, made of constants alone, or another y is not stacked: after the
  loop it is that x, the same value for every step, or that other y;
* constants and xs that the body does not read are not passed.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal, Var

from onescan.loop import Aval, Loop
from onescan.passes.fold import folded
from onescan.passes.overtime import evaluate
from onescan.passes.split import (
    Parts,
    Split,
    Values,
    parts_of,
    reads,
    rebuilt,
    slice_of,
    variables,
)
from onescan.primitives import record_of


def simplify(loop: Loop) -> Split | None:
    """Make a loop smaller without moving work."""
    parts = parts_of(loop)
    merged = _merged(parts)
    steady = [
        old is new for old, new in zip(merged.carry, merged.new_carry, strict=True)
    ]
    consts = (*merged.consts, *_masked(merged.carry, steady))
    fixed = _fixed(merged, consts)
    origin = [_origin(merged, i, fixed) for i in range(len(merged.ys))]
    kept = merged.replace(
        consts=consts,
        carry=_masked(merged.carry, [not s for s in steady]),
        new_carry=_masked(merged.new_carry, [not s for s in steady]),
        ys=_masked(merged.ys, [o is None for o in origin]),
    )
    live = slice_of(kept.eqns, kept.results, kept.inputs)
    read = reads(live, kept.results)
    smaller = kept.replace(
        consts=tuple(v for v in kept.consts if v in read),
        xs=tuple(v for v in kept.xs if v in read),
        eqns=tuple(live),
    )
    if _size(smaller) == _size(parts):
        return None

    def before(args: Values) -> Values:
        given = dict(zip(parts.inputs, args, strict=True))
        return [given[v] for v in smaller.inputs]

    def after(args: Values, results: Values) -> Values:
        given = dict(zip(parts.inputs, args, strict=True))
        rest = iter(results)
        finals = [
            given[v] if same else next(rest)
            for v, same in zip(parts.carry, steady, strict=True)
        ]
        stacks = dict(zip(map(id, smaller.ys), rest, strict=True))
        constants = {v: given[v] for v in consts}
        ys = []
        for y, source in zip(merged.ys, origin, strict=True):
            if source is None or source == "y":
                ys.append(stacks[id(y)])
            elif source == "x":
                ys.append(given[y])
            else:
                (value,) = evaluate(merged.eqns, constants, [y])
                ys.append(_every_step(value, y.aval, loop.length))
        return [*finals, *ys]

    return Split(
        "simplify", rebuilt(loop, smaller), before, after, _notes(steady, origin)
    )


def _notes(steady: list[bool], origin: list[str | None]) -> tuple[str, ...]:
    notes = []
    if count := sum(steady):
        what = "1 carry" if count == 1 else f"{count} carries"
        notes.append(f"made {what} that no step changes constant")
    if count := sum(o is not None for o in origin):
        what = "1 y that is" if count == 1 else f"{count} ys that are"
        notes.append(f"did not stack {what} there already")
    return tuple(notes)


def _every_step(value: Any, aval: Aval, length: int) -> Any:
    return jnp.broadcast_to(jnp.asarray(value, aval.dtype), (length, *aval.shape))


def _size(parts: Parts) -> tuple[int, int, int]:
    return len(parts.inputs), len(parts.results), len(parts.eqns)


def _masked(values: tuple[Any, ...], mask: list[bool]) -> tuple[Any, ...]:
    return tuple(v for v, keep in zip(values, mask, strict=True) if keep)


def _fixed(parts: Parts, consts: tuple[Var, ...]) -> set[Var]:
    """The values that are the same in every step."""
    fixed = set(consts)
    for eqn in parts.eqns:
        if fixed.issuperset(variables(eqn.invars)) and not eqn.effects:
            fixed.update(eqn.outvars)
    return fixed


def _origin(parts: Parts, i: int, fixed: set[Var]) -> str | None:
    """Where a y comes from, if not from the work of the step."""
    y = parts.ys[i]
    if isinstance(y, Literal) or y in fixed:
        return "const"
    if y in parts.xs:
        return "x"
    return "y" if any(y is other for other in parts.ys[:i]) else None


def _merged(parts: Parts) -> Parts:
    """The body with equal equations made one."""
    same: dict[Var, Any] = {}
    seen: dict[Any, JaxprEqn] = {}
    transposed: dict[Var, Any] = {}
    eqns = []

    def read(v: Any) -> Any:
        return v if isinstance(v, Literal) else same.get(v, v)

    for eqn in parts.eqns:
        eqn = eqn.replace(invars=[read(v) for v in eqn.invars])
        value = eqn.invars[0] if _gives_back(eqn) else folded(eqn)
        if value is not None:
            same[eqn.outvars[0]] = value
            continue
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
        eqns.append(eqn)
    return parts.replace(
        eqns=tuple(eqns),
        new_carry=tuple(map(read, parts.new_carry)),
        ys=tuple(map(read, parts.ys)),
    )


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
