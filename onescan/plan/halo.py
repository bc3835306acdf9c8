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
from onescan.plan.stencils import FUSED, IN_PLACE, LARGE, again
from onescan.primitives import record_of


@dataclass(frozen=True)
class Rows:
    """A grid as one tile has it, the axis of its rows, and its halo."""

    shape: tuple[int, ...]
    axis: int
    halo: int
    held: int  # bytes of all that stands in memory, carries with two places
    stored: frozenset[Any] = frozenset()  # values that are put away: many need them

    @property
    def count(self) -> int:
        return self.shape[self.axis]


@dataclass(frozen=True)
class _Seen:
    """A value that is made of rows: along which axis, and from how far away.

    Without an axis all of it is made of the same rows, which are numbered from the
    first one of the grid on.
    """

    axis: int | None
    distances: frozenset[int]

    def along(self, axis: int, start: int, size: int) -> frozenset[int]:
        """How far the rows are from where they come to lie, `size` of them."""
        if self.axis is not None:
            return frozenset(d - start for d in self.distances)
        places = range(start, start + size)
        return frozenset(d - i for d in self.distances for i in places)


HERE = frozenset([0])
#: rows that may be turned around
FEW = 8


class _Elsewhere(Exception):
    """A body in which some value needs other rows than those nearby."""


#: operations that are done again rather than putting their result away, which everyone
#: would have to wait for
AGAIN = 60


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
    if axis is None:
        return None
    stored = _stored(loop, shape)
    try:
        distances = _distances(loop, grid, axis, stored)
    except _Elsewhere:
        return None
    size = shape[axis]
    halo = max((int(min(d % size, -d % size)) for d in distances), default=0)
    held = sum(prod(here) * v.aval.dtype.itemsize for v in (*grid, *grid, *stored))
    return Rows(here, axis, halo, held, stored)


def _stored(loop: Loop, shape: tuple[int, ...]) -> frozenset[Any]:
    """The values that are pulled in so many ways that computing them once is better."""
    jaxpr: Any = loop.body.jaxpr
    more, found = again(jaxpr), set()
    costs: dict[Any, float] = {}
    for eqn in jaxpr.eqns:
        cost = record_of(eqn).cost if eqn.primitive.name in IN_PLACE else 0
        cost += sum(costs.get(v, 0) for v in set(filter(_is_var, eqn.invars)))
        for v in eqn.outvars:
            is_stored = v.aval.shape == shape and more[v] * cost > AGAIN
            found |= {v} if is_stored else set()
            costs[v] = 0 if is_stored else cost
    return frozenset(found)


def _is_var(v: Any) -> bool:
    return isinstance(v, Var)


def _distances(
    loop: Loop, grid: list[Any], axis: int, stored: frozenset[Any]
) -> frozenset[int]:
    """From how far away the next rows of a grid come, and those that are put away."""
    jaxpr: Any = loop.body.jaxpr
    seen: dict[Any, _Seen] = {v: _Seen(axis, HERE) for v in grid}
    distances: set[int] = set()
    for eqn in jaxpr.eqns:
        made_of = [seen.get(v) if isinstance(v, Var) else None for v in eqn.invars]
        if any(made_of):
            for v, found in zip(eqn.outvars, _results(eqn, made_of), strict=True):
                seen[v] = found
                if v in stored:
                    distances |= _of_a_grid(found, v, axis)
                    seen[v] = _Seen(axis, HERE)
    shape = grid[0].aval.shape
    results: list[Any] = [v for v in jaxpr.outvars if isinstance(v, Var)]
    for var in results:
        if (found := seen.get(var)) is not None:
            if var.aval.shape != shape:
                raise _Elsewhere
            distances |= _of_a_grid(found, var, axis)
    return frozenset(distances)


def _of_a_grid(seen: _Seen, var: Any, axis: int) -> frozenset[int]:
    if seen.axis not in (axis, None):
        raise _Elsewhere
    return seen.along(axis, 0, var.aval.shape[axis])


def _results(eqn: Equation, operands: list[_Seen | None]) -> list[_Seen]:
    """What comes of rows, each result of an equation."""
    (first,) = operands[:1]
    if eqn.primitive.name != "split" or first is None:
        return [_through(eqn, operands)] * len(eqn.outvars)
    if first.axis != eqn.params["axis"]:
        return [first] * len(eqn.outvars)
    found, start = [], 0
    for size in map(int, eqn.params["sizes"]):
        moved = frozenset(d + start for d in first.distances)
        found.append(_Seen(first.axis if size > 1 else None, moved))
        start += size
    return found


def _through(eqn: Equation, operands: list[_Seen | None]) -> _Seen:
    """What comes of rows."""
    name, params = eqn.primitive.name, eqn.params
    made_of = [(v, s) for v, s in zip(eqn.invars, operands, strict=True) if s]
    axes = {s.axis for _, s in made_of if s.axis is not None}
    if name not in FUSED or len(axes) > 1:
        raise _Elsewhere
    shape, out = made_of[0][0].aval.shape, eqn.outvars[0].aval.shape
    distances = frozenset().union(*(s.distances for _, s in made_of))
    if not axes:
        return _placed(eqn, made_of[0][1]) or _Seen(None, distances)
    (axis,) = axes
    if name in IN_PLACE:
        if any(s.axis is not None and v.aval.shape != out for v, s in made_of):
            raise _Elsewhere
        each = (s.along(axis, 0, out[axis]) for _, s in made_of)
        return _Seen(axis, frozenset().union(*each))
    if name == "concatenate":
        return _Seen(axis, _joined(eqn, operands, axis))
    if name == "slice":
        if (params["strides"] or (1,) * len(shape))[axis] != 1:
            raise _Elsewhere
        start = int(params["start_indices"][axis])
        moved = frozenset(d + start for d in distances)
        return _Seen(axis if out[axis] > 1 else None, moved)
    if name == "pad":
        low, _, inner = map(int, params["padding_config"][axis])
        if inner or operands[1]:
            raise _Elsewhere
        return _Seen(axis, frozenset(d - low for d in distances))
    if name == "transpose":
        return _Seen(list(params["permutation"]).index(axis), distances)
    if name == "rev":
        return _Seen(axis, _turned(distances, shape[axis], params["dimensions"], axis))
    if name == "broadcast_in_dim":
        return _Seen(params["broadcast_dimensions"][axis], distances)
    if name not in ("expand_dims", "reshape", "squeeze"):
        raise _Elsewhere
    wide = [i for i, n in enumerate(shape) if n > 1]
    there = [i for i, n in enumerate(out) if n > 1]
    if [shape[i] for i in wide] != [out[i] for i in there]:
        raise _Elsewhere
    return _Seen(there[wide.index(axis)], distances)


def _placed(eqn: Equation, seen: _Seen) -> _Seen | None:
    """The same rows everywhere, put to a place along one axis: that of rows, then."""
    if eqn.primitive.name != "pad":
        return None
    config = enumerate(eqn.params["padding_config"])
    padded = [(d, int(low)) for d, (low, high, inner) in config if low or high or inner]
    if len(padded) != 1:
        return None
    ((axis, low),) = padded
    return _Seen(axis, seen.along(axis, low, eqn.invars[0].aval.shape[axis]))


def _turned(
    distances: frozenset[int], size: int, dims: Sequence[int], axis: int
) -> frozenset[int]:
    """The same, of rows in the other order, if they are a few at an end."""
    if axis not in dims:
        return distances
    if size > FEW:
        raise _Elsewhere
    return frozenset(d + size - 1 - 2 * i for d in distances for i in range(size))


def _joined(eqn: Equation, operands: list[_Seen | None], axis: int) -> frozenset[int]:
    """How far rows come from in an array that is put together of pieces."""
    found: set[int] = set()
    start, dimension = 0, eqn.params["dimension"]
    for v, seen in zip(eqn.invars, operands, strict=True):
        size = int(v.aval.shape[dimension])
        if seen and dimension == axis:
            found |= seen.along(axis, start, size)
        elif seen:
            found |= seen.along(axis, 0, v.aval.shape[axis])
        start += size
    return frozenset(found)
