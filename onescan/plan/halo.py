"""How far the rows of a grid look: what those who have some rows need of the others.

The carries of one shape are a grid, and its rows are shared out.  Where every result of
that shape is computed from rows at a few distances, around the end of the grid or not,
who has some rows needs only so many of the rows beside them, its halo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from jax.extend.core import Var

from onescan.loop import Equation, Loop
from onescan.plan.merged import Merged
from onescan.plan.stencils import FUSED, IN_PLACE, LARGE, ways
from onescan.primitives import record_of


@dataclass(frozen=True)
class Rows:
    """A grid as one tile has it, the axis of its rows, and its halo."""

    shape: tuple[int, ...]
    axis: int
    halo: int
    carries: int  # bytes of all that are such a grid

    @property
    def count(self) -> int:
        return self.shape[self.axis]


@dataclass(frozen=True)
class _Seen:
    """A value that is made of rows: along which axis, and from how far away."""

    axis: int
    distances: frozenset[int]


class _Elsewhere(Exception):
    """A body in which some value needs other rows than those nearby."""


#: how often operations may be done, on average, where nothing is put away
REPEATED = 2.5


def rows_of(loop: Loop, axes: Sequence[Merged]) -> Rows | None:
    """The grid of a loop whose rows look at rows nearby, if it is one."""
    jaxpr: Any = loop.body.jaxpr
    carries = jaxpr.invars[loop.num_consts : loop.num_consts + loop.num_carry]
    shapes = {v.aval.shape for v in carries if v.aval.size >= LARGE}
    if len(shapes) != 1 or loop.is_while:
        return None
    (shape,) = shapes
    grid = [v for v in carries if v.aval.shape == shape]
    lanes = {d for axis in axes for part in axis.parts for d in part.get(grid[0], ())}
    here = tuple(1 if d in lanes else n for d, n in enumerate(shape))
    axis = next((d for d, n in enumerate(here) if n > 1), None)
    if axis is None or _repeats(loop) > REPEATED:
        return None
    try:
        distances = _distances(loop, grid, axis)
    except _Elsewhere:
        return None
    size = shape[axis]
    halo = max((int(min(d % size, -d % size)) for d in distances), default=0)
    held = sum(prod(here) * v.aval.dtype.itemsize for v in grid)
    return Rows(here, axis, halo, held)


def _repeats(loop: Loop) -> float:
    """How often an operation is done on average, where nothing is put away."""
    jaxpr = loop.body.jaxpr
    pulled = ways(jaxpr)
    done = needed = 1.0
    for eqn in jaxpr.eqns:
        elements, each = record_of(eqn).done(eqn)
        needed += elements * each
        done += elements * each * max(1, len(pulled[eqn.outvars[0]]))
    return done / needed


def _distances(loop: Loop, grid: list[Any], axis: int) -> frozenset[int]:
    """From how far away the next rows of a grid come."""
    jaxpr: Any = loop.body.jaxpr
    seen: dict[Any, _Seen] = {v: _Seen(axis, frozenset([0])) for v in grid}
    for eqn in jaxpr.eqns:
        made_of = [seen.get(v) if isinstance(v, Var) else None for v in eqn.invars]
        if any(made_of):
            found = _through(eqn, made_of)
            seen.update((v, found) for v in eqn.outvars)
    distances: set[int] = set()
    results: list[Any] = [v for v in jaxpr.outvars if isinstance(v, Var)]
    for var in results:
        if (found := seen.get(var)) is not None:
            if var.aval.shape != grid[0].aval.shape or found.axis != axis:
                raise _Elsewhere
            distances |= found.distances
    return frozenset(distances)


def _through(eqn: Equation, operands: list[_Seen | None]) -> _Seen:
    """What comes of rows."""
    name, params = eqn.primitive.name, eqn.params
    made_of = [(v, s) for v, s in zip(eqn.invars, operands, strict=True) if s]
    if name not in FUSED or len({s.axis for _, s in made_of}) > 1:
        raise _Elsewhere
    axis, out = made_of[0][1].axis, eqn.outvars[0].aval.shape
    distances = frozenset().union(*(s.distances for _, s in made_of))
    shape = made_of[0][0].aval.shape
    if name in IN_PLACE:
        if any(v.aval.shape != out for v, _ in made_of):
            raise _Elsewhere
        return _Seen(axis, distances)
    if name == "slice":
        if (params["strides"] or (1,) * len(shape))[axis] != 1:
            raise _Elsewhere
        return _moved(axis, distances, int(params["start_indices"][axis]))
    if name == "pad":
        low, _, inner = map(int, params["padding_config"][axis])
        if inner or operands[1]:
            raise _Elsewhere
        return _moved(axis, distances, -low)
    if name == "concatenate":
        return _Seen(axis, _joined(eqn, operands, axis))
    if name == "transpose":
        return _Seen(list(params["permutation"]).index(axis), distances)
    if name == "rev" and axis not in params["dimensions"]:
        return _Seen(axis, distances)
    wide = [i for i, n in enumerate(shape) if n > 1]
    if [shape[i] for i in wide] != [n for n in out if n > 1] or axis not in wide:
        raise _Elsewhere
    if name not in ("broadcast_in_dim", "expand_dims", "reshape", "squeeze"):
        raise _Elsewhere
    there = [i for i, n in enumerate(out) if n > 1]
    return _Seen(there[wide.index(axis)], distances)


def _moved(axis: int, distances: frozenset[int], by: int) -> _Seen:
    return _Seen(axis, frozenset(d + by for d in distances))


def _joined(eqn: Equation, operands: list[_Seen | None], axis: int) -> frozenset[int]:
    found: set[int] = set()
    start, along = 0, eqn.params["dimension"] == axis
    for v, seen in zip(eqn.invars, operands, strict=True):
        found.update(d - start * along for d in (seen.distances if seen else ()))
        start += int(v.aval.shape[eqn.params["dimension"]])
    return frozenset(found)
