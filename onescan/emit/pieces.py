"""Arrays put together of pieces along an axis, none of which is copied.

`jnp.roll`, the borders of a grid and windows that reach past them are concatenations
and pads of slices.  Where such an array is large, writing it down would be most of the
work of a step.  So it is a function of the index like any other value (`arrays`):

- at a position known to lie in one piece, that piece is read; loops over the vector
  axis are cut where pieces meet (`Array.cuts`), so almost all positions are known;
- a vector across a cut is put together from a vector of each piece by a shuffle;
- at a position that a loop walks over, pieces of one array (a roll) are told apart by
  a choice between positions, made once for a row; those of several arrays by a choice
  between values.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import (
    Array,
    Cuts,
    Index,
    Vec,
    add,
    as_value,
    span,
    spanning,
)
from onescan.emit.constants import nothing, positions
from onescan.emit.emitter import Emitter
from onescan.emit.structural import RULES as WRITTEN
from onescan.loop import Equation

#: operations of other pieces, at each place, from which a walk is better cut
WASTE = 16

Shape = tuple[int, ...]
Window = tuple[Array, Shape]


class Pieces:
    """Parts one behind the other along an axis."""

    def __init__(self, e: Emitter, parts: list[Array], axis: int) -> None:
        self.e, self.parts, self.axis = e, parts, axis
        sizes = [int(part.shape[axis]) for part in parts]
        self.starts = [0, *accumulate(sizes)][:-1]
        self.size = sum(sizes)
        self.windows = self._of_one_array()

    def _of_one_array(self) -> list[Window] | None:
        """The parts as windows of one array that differ along the axis alone."""
        arrays = {id(part.window[0] if part.window else part) for part in self.parts}
        if len(arrays) > 1:
            return None
        windows = [p.window or (p, (0,) * len(p.shape)) for p in self.parts]
        others = {(*at[: self.axis], *at[self.axis + 1 :]) for _, at in windows}
        return windows if len(others) == 1 else None

    def array(self, lanes: tuple[Any, ...] | None = None) -> Array:
        first = self.parts[0]
        shape = (*first.shape[: self.axis], self.size, *first.shape[self.axis + 1 :])
        reads = frozenset().union(*(part.reads for part in self.parts))
        return Array(
            shape=shape,
            dtype=first.dtype,
            at=self.at,
            reads=reads,
            elsewhere=reads,
            cost=max(part.cost for part in self.parts),
            depth=1 + max(part.depth for part in self.parts),
            lanes=lanes if lanes is not None else first.lanes,
            steady=all(part.steady for part in self.parts),
            cuts=self._cuts(len(shape)),
            patchwork=self._is_patchwork(),
        )

    def _is_patchwork(self) -> bool:
        """Whether a position that is not known costs much more than one that is."""
        if any(part.patchwork for part in self.parts):
            return True
        costs = [part.cost for part in self.parts]
        return self.windows is None and sum(costs) - max(costs) > WASTE

    def _cuts(self, rank: int) -> Cuts:
        found: list[set[int]] = [set() for _ in range(rank)]
        found[self.axis].update(self.starts[1:])
        for part, start in zip(self.parts, self.starts, strict=True):
            for d, cuts in enumerate(part.cuts):
                move = start if d == self.axis else 0
                found[d].update(cut + move for cut in cuts)
        return tuple(map(frozenset, found))

    def at(self, index: tuple[Index, ...]) -> ty.Value:
        place = index[self.axis]
        low, high = span(self.e.b, place) or (0, self.size - 1)
        first, last = (self._number(min(max(i, 0), self.size - 1)) for i in (low, high))
        if first == last:
            here = add(self.e.b, place, -self.starts[first])
            return self.parts[first].at(self._with(index, here))
        if isinstance(place, Vec) and isinstance(place.base, int):
            return self._across(index, place.base, place.width, first, last)
        where = as_value(self.e.b, place)
        if self.windows is not None:
            return self._by_position(index, where, first, last)
        return self._by_value(index, where, first, last)

    def _number(self, position: int) -> int:
        """Of the part at a position."""
        return bisect_right(self.starts, position) - 1

    def _with(self, index: tuple[Index, ...], place: Index) -> tuple[Index, ...]:
        return (*index[: self.axis], place, *index[self.axis + 1 :])

    # a position that is known only at run time

    def _is_from(self, where: ty.Value, k: int) -> ty.Value:
        """Whether a position is that of a part, or of one behind it."""
        start = ty.constant(ty.I64, self.starts[k], ty.width_of(where))
        return self.e.b.icmp_signed(">=", where, start)

    def _by_position(
        self, index: tuple[Index, ...], where: ty.Value, first: int, last: int
    ) -> ty.Value:
        b, axis = self.e.b, self.axis
        assert self.windows is not None
        source, starts = self.windows[0]
        found: Any = None
        for k in range(first, last + 1):
            move = self.windows[k][1][axis] - self.starts[k]
            there = b.add(where, ty.constant(ty.I64, move, ty.width_of(where)))
            if found is None:
                found = there
            else:
                found = b.select(self._is_from(where, k), there, found)
        place = [add(b, i, s) for i, s in zip(index, starts, strict=True)]
        place[axis] = spanning(b, found, 0, source.shape[axis] - 1)
        return source.at(tuple(place))

    def _by_value(
        self, index: tuple[Index, ...], where: ty.Value, first: int, last: int
    ) -> ty.Value:
        b, width = self.e.b, ty.width_of(where)
        found: Any = None
        for k in range(first, last + 1):
            here = b.sub(where, ty.constant(ty.I64, self.starts[k], width))
            end = self.parts[k].shape[self.axis] - 1
            for bound, sign in ((0, "<"), (end, ">")):
                limit = ty.constant(ty.I64, bound, width)
                here = b.select(b.icmp_signed(sign, here, limit), limit, here)
            here = spanning(b, here, 0, end)
            value = self.parts[k].at(self._with(index, here))
            if found is None:
                found = value
                continue
            chosen, value, found = ty.match(b, self._is_from(where, k), value, found)
            found = b.select(chosen, value, found)
        return found

    # a vector across a cut

    def _across(
        self, index: tuple[Index, ...], base: int, width: int, first: int, last: int
    ) -> ty.Value:
        b = self.e.b
        found: Any = None
        lanes = list(range(width))  # where the numbers so far stand in `found`
        for k in range(first, last + 1):
            begin = max(self.starts[k] - base, 0)
            size = self.parts[k].shape[self.axis]
            end = min(self.starts[k] + size - base, width)
            value, move = self._vector(index, k, base - self.starts[k], width)
            value = ty.splat(b, value, width)
            for lane in range(begin, end):
                lanes[lane] = lane + move + (0 if found is None else width)
            if found is None:
                found = value
                continue
            mask = [n if i < end else 0 for i, n in enumerate(lanes)]
            found = b.shuffle_vector(found, value, positions(*mask))
            lanes = list(range(width))
        return found

    def _vector(
        self, index: tuple[Index, ...], k: int, base: int, width: int
    ) -> tuple[ty.Value, int]:
        """A vector with what part k has of `width` positions from `base` on.

        The number of position base + i stands in lane i + the second result.
        """
        b, part = self.e.b, self.parts[k]
        size = part.shape[self.axis]
        if size >= width:
            start = min(max(base, 0), size - width)
            value = part.at(self._with(index, Vec(start, width)))
            return value, base - start
        if part.window and part.window[0].shape[self.axis] >= width:
            whole, starts = part.window
            there = base + starts[self.axis]
            start = min(max(there, 0), whole.shape[self.axis] - width)
            place = [add(b, i, s) for i, s in zip(index, starts, strict=True)]
            place[self.axis] = Vec(start, width)
            return whole.at(tuple(place)), there - start
        value: Any = None
        for i in range(max(0, -base), min(width, size - base)):
            number: Any = part.at(self._with(index, base + i))
            kind = ty.with_width(number.type, width)
            value = nothing(kind) if value is None else value
            value = b.insert_element(value, number, ir.Constant(ty.I32, i))
        return value, 0


# rules


def concatenate(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (out,) = eqn.outvars
    parts = [x for x in operands if x.shape[eqn.params["dimension"]]]
    pieces = Pieces(e, parts, eqn.params["dimension"])
    return [pieces.array(e.plan.local_lanes(out))]


def pad(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x, filler), (out,) = operands, eqn.outvars
    config = [tuple(map(int, dim)) for dim in eqn.params["padding_config"]]
    if any(inner or min(low, high) < 0 for low, high, inner in config):
        return WRITTEN["pad"](e, eqn, operands)
    for axis, (low, high, _) in enumerate(config):
        parts = [x]
        if low:
            parts.insert(0, _filled(x, filler, axis, low))
        if high:
            parts.append(_filled(x, filler, axis, high))
        if len(parts) > 1:
            x = Pieces(e, parts, axis).array(e.plan.local_lanes(out))
    return [x]


def _filled(like: Array, filler: Array, axis: int, size: int) -> Array:
    """A part that is one number everywhere."""
    shape = (*like.shape[:axis], size, *like.shape[axis + 1 :])
    return replace(
        filler, shape=shape, at=lambda index: filler.at(()), memory=None, window=None
    )


def slice_(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """A slice, which knows what it is a window of, and where pieces meet in it."""
    (x,) = operands
    if set(eqn.params["strides"] or (1,)) != {1}:
        return WRITTEN["slice"](e, eqn, [e.materialise(x) if any(x.cuts) else x])
    (result,) = WRITTEN["slice"](e, eqn, operands)
    return [_window(result, x, tuple(map(int, eqn.params["start_indices"])))]


def split(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), axis = operands, eqn.params["axis"]
    found, start = [], 0
    for result in WRITTEN["split"](e, eqn, operands):
        starts = tuple(start if d == axis else 0 for d in range(len(x.shape)))
        found.append(_window(result, x, starts))
        start += int(result.shape[axis])
    return found


def _window(result: Array, x: Array, starts: Shape) -> Array:
    """A part of an array, which knows where it begins and where pieces meet in it."""
    cuts = tuple(
        frozenset(cut - s for cut in found if 0 < cut - s < n)
        for found, s, n in zip(x.cuts, starts, result.shape, strict=False)
    )
    return replace(result, window=(x, starts), cuts=cuts)


def _viewed(name: str, places: Any) -> Any:
    """The rule of a view, with the cuts of its operand where they come to lie.

    `places` gives, for each dimension of the result, the dimension of the operand that
    it is, or None.
    """

    def rule(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
        x = operands[0]
        if not any(x.cuts):
            return WRITTEN[name](e, eqn, operands)
        found = places(eqn, x.shape, tuple(e.plan.local_shape(eqn.outvars[0])))
        if found is None:
            return WRITTEN[name](e, eqn, [e.materialise(x), *operands[1:]])
        (result,) = WRITTEN[name](e, eqn, operands)
        cuts = [x.cuts[d] if d is not None else frozenset() for d in found]
        return [replace(result, cuts=tuple(cuts))]

    return rule


def _spread(eqn: Equation, old: Shape, new: Shape) -> list[int | None]:
    found: list[int | None] = [None] * len(new)
    for i, d in enumerate(eqn.params["broadcast_dimensions"]):
        found[d] = i if old[i] == new[d] else None
    return found


def _reshaped(eqn: Equation, old: Shape, new: Shape) -> list[int | None] | None:
    """Where a reshape does nothing but add and drop dimensions of one position."""
    wide = [i for i, n in enumerate(old) if n > 1]
    if [old[i] for i in wide] != [n for n in new if n > 1]:
        return None
    rest = iter(wide)
    return [next(rest) if n > 1 else None for n in new]


def rev(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """A reversal, whose cuts are reversed too."""
    (x,), (result,) = operands, WRITTEN["rev"](e, eqn, operands)
    dims = eqn.params["dimensions"]
    cuts = tuple(
        frozenset(n - cut for cut in found) if d in dims else found
        for d, (found, n) in enumerate(zip(x.cuts, x.shape, strict=False))
    )
    return [replace(result, cuts=cuts)]


VIEWS = {
    "broadcast_in_dim": _viewed("broadcast_in_dim", _spread),
    "expand_dims": _viewed("expand_dims", _reshaped),
    "reshape": _viewed("reshape", _reshaped),
    "squeeze": _viewed("squeeze", _reshaped),
    "transpose": _viewed("transpose", lambda eqn, *_: eqn.params["permutation"]),
}
RULES = {
    "concatenate": concatenate,
    "pad": pad,
    "rev": rev,
    "slice": slice_,
    "split": split,
    **VIEWS,
}
