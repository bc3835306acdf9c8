"""Bodies in which the positions of a large grid look at their neighbours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Any

from jax.extend.core import Jaxpr, Var

from onescan.loop import Atom, Equation, Loop
from onescan.primitives import ELEMENTWISE, FREE, IDENTITIES

#: what puts arrays together of pieces
PIECES = frozenset({"concatenate", "pad"})
#: what computes each element where it is pulled, if pieces are not written down
FUSED = ELEMENTWISE | FREE | IDENTITIES | PIECES
#: numbers of a value that is large
LARGE = 1024
#: ways in which a value is pulled, from which on nobody counts
MANY = 16


def is_stencil(loop: Loop, width: int) -> bool:
    """Whether large values are put together of pieces, and computed with.

    Their rows must be as long as a vector.
    """
    readers = _readers(loop.body.jaxpr.eqns)
    return not loop.is_while and any(
        eqn.primitive.name in PIECES
        and is_large(out)
        and out.aval.shape[-1] >= width
        and readers[out]
        and all(reader.primitive.name in FUSED for reader in readers[out])
        for eqn in loop.body.jaxpr.eqns
        for out in eqn.outvars
    )


def is_large(var: Atom) -> bool:
    return prod(var.aval.shape) >= LARGE


def _readers(eqns: Sequence[Equation]) -> dict[Any, list[Equation]]:
    found: dict[Any, list[Equation]] = defaultdict(list)
    for eqn in eqns:
        for v in eqn.invars:
            if isinstance(v, Var):
                found[v].append(eqn)
    return found


def ways(jaxpr: Jaxpr) -> dict[Any, set[Any]]:
    """For each value, the ways in which it is pulled: by whom, and from how far.

    All results of one shape pull together.  The slices that a roll puts together again
    are one way to pull what they are of.
    """
    readers = _readers(jaxpr.eqns)
    found: dict[Any, set[Any]] = defaultdict(set)
    for var in jaxpr.outvars:
        if isinstance(var, Var):
            found[var].add(tuple(var.aval.shape))
    for eqn in reversed(jaxpr.eqns):
        name = eqn.primitive.name
        pulled = set().union(*(found[v] for v in eqn.outvars))
        if name not in FUSED:
            pulled = {id(eqn)}
        elif name not in ELEMENTWISE | IDENTITIES and not _is_put_together(eqn, readers):
            pulled = {hash((way, id(eqn))) for way in pulled}
        for v in eqn.invars:
            if isinstance(v, Var) and len(found[v]) < MANY:
                found[v] |= pulled
    return found


def _is_put_together(eqn: Equation, readers: dict[Any, list[Equation]]) -> bool:
    """Whether a slice is nothing but a piece."""
    return eqn.primitive.name == "slice" and all(
        reader.primitive.name == "concatenate" for reader in readers[eqn.outvars[0]]
    )
