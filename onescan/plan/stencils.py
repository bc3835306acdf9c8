"""Bodies in which the positions of a large grid look at their neighbours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Any

from jax.extend.core import Jaxpr, Var

from onescan.loop import Equation, Loop
from onescan.plan.merged import Merged
from onescan.primitives import ELEMENTWISE, FREE, IDENTITIES, record_of

#: what puts arrays together of pieces
PIECES = frozenset({"concatenate", "pad"})
#: what computes each element where it is pulled, if pieces are not written down
FUSED = ELEMENTWISE | IDENTITIES | FREE | PIECES
#: what reads its operands at the place of its result
IN_PLACE = ELEMENTWISE | IDENTITIES
#: kinds of operations next to which reading pieces in place is no gain
OTHERS = ("product", "control", "matrix", "sort", "transform")
#: numbers of a value that is large
LARGE = 1024
#: lanes from which on they are better than a walk by rows: stencils along the columns
#: of 16 grids of 16 x 16 and of 5 x 1000 take 0.3 and 0.6 of the time, of 100 x 100 1.6
MANY_LANES = 256
#: the least part of a vector that is a row of the grids of a batch: those of 7 and 8
#: numbers are 2 to 5 times as fast by rows, those of 4 and 5 twice as fast by lanes
SHORT = 3 / 8
#: ways in which a value is pulled, from which on nobody counts
MANY = 16


def is_stencil(
    loop: Loop, width: int, axes: Sequence[Merged], by_rows: bool = False
) -> bool:
    """Whether large values are put together of pieces, and computed with.

    They are large in each lane, their rows are as long as a vector, and there is no
    work of another kind in the body.  Where grids are walked `by_rows`, lanes count
    where there are many, and some lie along the rows: others are walked in turn.
    """
    eqns: Any = loop.body.jaxpr.eqns
    readers, results = _readers(eqns), loop.body.jaxpr.outvars
    if any(record_of(eqn).kind in OTHERS for eqn in eqns):
        return False
    return not loop.is_while and any(
        eqn.primitive.name in PIECES
        and _is_grid(out, width, axes, by_rows)
        and (readers[out] or out in results)
        and all(reader.primitive.name in FUSED for reader in readers[out])
        for eqn in eqns
        for out in eqn.outvars
    )


def _is_grid(var: Any, width: int, axes: Sequence[Merged], by_rows: bool) -> bool:
    """Whether a value is large, with rows as long as a vector.

    Rows may be shorter where lanes, which are the other way, would put vectors across
    the grids of a batch.
    """
    held = [axis for axis in axes if axis.holds(var)]
    lanes, shape = prod(axis.size for axis in held), var.aval.shape
    taken = {dim for axis in held for part in axis.parts for dim in part[var]}
    along = len(shape) - 1 in taken
    if by_rows and not (along and lanes >= MANY_LANES):
        is_batch = taken and not along and len(shape) - len(taken) > 1
        shortest = width * SHORT if is_batch else width
        return prod(shape) >= LARGE and shape[-1] >= shortest
    return prod(shape) // lanes >= LARGE and shape[-1] >= width


def _readers(eqns: Sequence[Equation]) -> dict[Any, list[Equation]]:
    found: dict[Any, list[Equation]] = defaultdict(list)
    for eqn in eqns:
        for v in eqn.invars:
            if isinstance(v, Var):
                found[v].append(eqn)
    return found


def again(jaxpr: Jaxpr) -> dict[Any, int]:
    """How many times more often than once each value is pulled, if nobody keeps it.

    Of a chain of operations only the last counts: keeping that one keeps them all.
    """
    readers, pulled = _readers(jaxpr.eqns), ways(jaxpr)
    results = set(filter(_is_var, jaxpr.outvars))
    found: dict[Any, int] = defaultdict(int)
    for eqn in jaxpr.eqns:
        for v in eqn.outvars:
            followed = v not in results and all(
                reader.primitive.name in IN_PLACE
                and all(pulled[out] == pulled[v] for out in reader.outvars)
                for reader in readers[v]
            )
            found[v] = 0 if followed else len(pulled[v]) - 1
    return found


def ways(jaxpr: Jaxpr) -> dict[Any, set[Any]]:
    """For each value, the ways in which it is pulled: by whom, and from how far.

    All results of one shape pull together.  The slices that a roll puts together again
    are one way to pull what they are of.
    """
    readers = _readers(jaxpr.eqns)
    found: dict[Any, set[Any]] = defaultdict(set)
    results: list[Any] = [v for v in jaxpr.outvars if _is_var(v)]
    for var in results:
        found[var].add(tuple(var.aval.shape))
    for eqn in reversed(jaxpr.eqns):
        name = eqn.primitive.name
        pulled = set().union(*(found[v] for v in eqn.outvars))
        if name not in FUSED:
            pulled = {id(eqn)}
        elif name not in IN_PLACE and not _is_put_together(eqn, readers):
            pulled = {hash((way, id(eqn))) for way in pulled}
        for v in eqn.invars:
            if _is_var(v) and len(found[v]) < MANY:
                found[v] |= pulled
    return found


def _is_var(v: Any) -> bool:
    return isinstance(v, Var)


def _is_put_together(eqn: Equation, readers: dict[Any, list[Equation]]) -> bool:
    """Whether a slice is nothing but a piece."""
    return eqn.primitive.name == "slice" and all(
        reader.primitive.name == "concatenate" for reader in readers[eqn.outvars[0]]
    )
