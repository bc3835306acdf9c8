"""few_bits: integers that stay small are computed in a type of one or two bytes.

In goes a body that takes small integers to larger ones for what it does between, as a
filter of an image does, or the neighbours of a cell are counted: ``((x.astype(int32) *
37 + 11) >> 5).astype(int8)``.  Out comes one that computes in int16, of which a vector
has twice as many, if then every array of the body is of small numbers.

Right, because nothing wraps around in either type: what every value may be, whatever
the loop is given, is between two numbers (`ranges`) that both types have.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Literal, Var
from jax.extend.core.primitives import convert_element_type_p

from onescan.loop import Loop
from onescan.passes.ranges import (
    RULES,
    Range,
    Ranges,
    fits,
    is_truth,
    joined,
    of_type,
)
from onescan.passes.split import Split, parts_of, rebuilt, unchanged

#: the types that values may be computed in, and the bytes from which one is large
SMALL, LARGE = ("int8", "uint8", "int16", "uint16"), 4
#: what means another thing where the highest bit is no sign
SIGNED = {"abs", "shift_right_arithmetic"}
#: whose results are in the type of their operands, or say in which
TYPED = {"convert_element_type": "new_dtype", "iota": "dtype"}


def few_bits(loop: Loop) -> Split | None:
    """Compute what is small in a small type."""
    parts = parts_of(loop)
    if any(map(_is_large, [*parts.inputs, *parts.results])):
        return None
    large = [eqn for eqn in parts.eqns if any(map(_is_large, eqn.outvars))]
    if not large or not all(map(_is_known, parts.eqns)):
        return None
    kind = _type_of(parts.eqns)
    if kind is None:
        return None
    eqns, names = [], {}
    for eqn in parts.eqns:
        eqns += _in_type(eqn, kind, names)
    what = "1 operation" if len(large) == 1 else f"{len(large)} operations"
    return Split(
        name="few_bits",
        loop=rebuilt(loop, parts.replace(eqns=tuple(eqns))),
        before=unchanged,
        after=lambda args, results: results,
        notes=(f"computed {what} in {kind}, which holds all that they can give",),
    )


def _is_large(v: Any) -> bool:
    """Whether it is an array of large numbers."""
    return prod(v.aval.shape) > 1 and _is_wide(v)


def _is_wide(v: Any) -> bool:
    return v.aval.dtype.itemsize >= LARGE


def _is_known(eqn: JaxprEqn) -> bool:
    """Whether an equation is none of large numbers, or can be one of small ones."""
    if not any(map(_is_large, [*eqn.invars, *eqn.outvars])):
        return True
    if eqn.primitive.name == "select_n" and not is_truth(eqn.invars[0]):
        return False  # its places are of a type of their own
    if any(_is_wide(v) and not _is_large(v) for v in eqn.outvars):
        return False  # a number of an array, which others read as it is
    return eqn.primitive.name in RULES and not eqn.effects


def _type_of(eqns: Sequence[JaxprEqn]) -> np.dtype[Any] | None:
    """The smallest type for all large arrays, and for what is computed with them."""
    ranges, needed = Ranges(), list[Range | None]()
    for eqn in eqns:
        ranges.add(eqn)
        for v in _retyped(eqn):
            needed.append(ranges.of(v))
    known = [found for found in needed if found is not None]
    if not known or len(known) < len(needed):
        return None
    whole = joined(known)
    signed = any(eqn.primitive.name in SIGNED for eqn in eqns)
    for kind in map(np.dtype, SMALL):
        room = of_type(kind)
        if room is not None and fits(whole, room) and not (signed and kind.kind == "u"):
            return kind
    return None


def _retyped(eqn: JaxprEqn) -> list[Any]:
    """The operands and results of an equation that are computed in another type."""
    if not any(map(_is_large, [*eqn.invars, *eqn.outvars])):
        return []
    atoms: list[Any] = [*eqn.invars, *eqn.outvars]
    if eqn.primitive.name == "dynamic_slice":  # from its place on
        atoms = [eqn.invars[0], *eqn.outvars]
    if eqn.primitive.name == "convert_element_type":
        return [v for v in atoms if _is_large(v)]
    return [v for v in atoms if _is_wide(v)]


def _in_type(eqn: JaxprEqn, kind: Any, names: dict[Any, Var]) -> list[JaxprEqn]:
    """The same, of such a type; `names` are those that its values have there."""
    retyped = _retyped(eqn)
    if not retyped:
        return [eqn]
    eqns: list[JaxprEqn] = []

    def of(v: Any) -> Any:
        if not any(v is each for each in retyped):
            return v
        if isinstance(v, Literal):
            return Literal(np.asarray(v.val).astype(kind)[()], _aval(v, kind))
        if v not in names:  # a number by itself
            names[v] = Var(_aval(v, kind))
            eqns.append(_conversion(eqn, v, names[v], kind))
        return names[v]

    invars = [of(v) for v in eqn.invars]
    for v in eqn.outvars:
        if any(v is each for each in retyped):
            names[v] = Var(_aval(v, kind))
    outvars = [names.get(v, v) for v in eqn.outvars]
    params = dict(eqn.params)
    if (said := TYPED.get(eqn.primitive.name)) and outvars != eqn.outvars:
        params[said] = kind
    return [*eqns, eqn.replace(invars=invars, outvars=outvars, params=params)]


def _aval(v: Any, kind: Any) -> ShapedArray:
    return ShapedArray(v.aval.shape, kind)


def _conversion(eqn: JaxprEqn, v: Any, result: Var, kind: Any) -> JaxprEqn:
    params = {"new_dtype": kind, "weak_type": False, "sharding": None}
    return eqn.replace(
        primitive=convert_element_type_p, params=params, invars=[v], outvars=[result]
    )
