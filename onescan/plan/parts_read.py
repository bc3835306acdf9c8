"""Values of which a step reads a few elements only.

A row of a table that is computed from the carry, the logarithm of the probability of
what was drawn: who needs few elements of a value need not have all of it computed.
"""

from __future__ import annotations

from math import inf, prod
from typing import Any

from jax.extend.core import Jaxpr, Var

from onescan.loop import Equation
from onescan.primitives import ELEMENTWISE, IDENTITIES

#: what reads elements of its first operand, by places that are its others
READERS = frozenset({"gather", "dynamic_slice"})
#: what has for each of its elements one of its operands, or of some of them
ONE_FOR_ONE = ELEMENTWISE | IDENTITIES
ONE_FOR_ONE |= {"broadcast_in_dim", "expand_dims", "reshape", "rev", "slice", "squeeze"}
ONE_FOR_ONE |= {"tile", "transpose"}
#: elements of a value for each that is read of it, at least
FEW = 4


def parts_read(jaxpr: Jaxpr) -> dict[Any, float]:
    """The share of its elements that is read, of each value that is read in part."""
    readers: dict[Any, list[Equation]] = {}
    for eqn in jaxpr.eqns:
        for var in {v for v in eqn.invars if isinstance(v, Var)}:
            readers.setdefault(var, []).append(eqn)
    whole = {v for v in jaxpr.outvars if isinstance(v, Var)}
    found: dict[Any, float] = {}
    for eqn in reversed(jaxpr.eqns):
        var: Any = eqn.outvars[0]
        if not _is_one_for_one(eqn) or var in whole or var not in readers:
            continue
        read = sum(_elements_read(var, reader, found) for reader in readers[var])
        share = read / max(prod(var.aval.shape), 1)
        if share * FEW <= 1:
            found[var] = share
    return found


def _elements_read(var: Any, reader: Equation, found: dict[Any, float]) -> float:
    """How many elements of a value an equation reads, at most."""
    out = reader.outvars[0]
    of_result = prod(out.aval.shape)
    if reader.primitive.name in READERS and var not in reader.invars[1:]:
        return of_result
    return found.get(out, 1.0) * of_result if _is_one_for_one(reader) else inf


def _is_one_for_one(eqn: Equation) -> bool:
    return eqn.primitive.name in ONE_FOR_ONE and len(eqn.outvars) == 1
