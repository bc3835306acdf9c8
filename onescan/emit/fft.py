"""onescan_fft: Fourier transforms along one axis, of lengths that are powers of two.

Stockham's method: a stage combines four numbers (two in the last one, if need be) that
lie a quarter of the axis apart, and writes them so that the last stage leaves all in
order.  The combinations of a stage are independent, so they are done in lanes, in
vectors along other axes, or by threads.  Where the axis itself is the one for vectors,
it changes places with another one.  If it is alone, it is taken as a matrix: its
columns are transformed, turned by the angles in between, and then its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, Vec, add, as_value, scale
from onescan.emit.emitter import Emitter
from onescan.emit.transposition import transposed_square

#: points from which vectors may lie along the axis itself
FEWEST = 16
#: operations of a combination
COST = 40

Pair = tuple[ty.Value, ty.Value]
Place = tuple[Index, ...]
Source = Callable[[Place], Pair]
Target = Callable[[Place, Pair], None]


def fft(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    re, im = (e.once(x) for x in operands)
    targets = [e.fresh(v) for v in eqn.outvars]
    if 0 in re.shape:
        return targets
    axis, n = eqn.params["axis"], re.shape[eqn.params["axis"]]
    memories: list[Any] = [t.memory for t in targets]
    shape, lanes = targets[0].shape, targets[0].lanes
    source: Source = lambda place: (re.at(place), im.at(place))
    walk = _Walk(e, source, _into(e, memories), shape, lanes, re.dtype)
    laned = any(lane is not None and lane.vector for lane in lanes)
    width = min(n, e.plan.inner_width)
    last = axis == len(shape) - 1 and width > 1 and not laned
    if last and len(shape) > 1 and width >= 4 and shape[-2] % width == 0:
        walk.exchanged(width)
    elif last and n >= FEWEST:
        walk.as_matrix()
    else:
        stages = _Stages(e, shape, lanes, axis, re.dtype)
        stages.run(source, _into(e, memories))
    return targets


def _into(e: Emitter, memories: list[Memory]) -> Target:
    def put(place: Place, pair: Pair) -> None:
        for memory, part in zip(memories, pair, strict=True):
            memory.store(e.b, place, part)

    return put


def _from(e: Emitter, memories: list[Memory]) -> Source:
    def get(place: Place) -> Pair:
        re, im = (memory.load(e.b, place) for memory in memories)
        return re, im

    return get


def _turns(e: Emitter, angles: np.ndarray, dtype: Any) -> Source:
    """exp(-2 pi i x), for a table of x."""
    tables = np.cos(2 * np.pi * angles), -np.sin(2 * np.pi * angles)
    return _from(e, [e.constant_data(t.astype(dtype)) for t in tables])


class _Walk:
    """Transforms along the last axis, by vectors along another one."""

    def __init__(
        self,
        e: Emitter,
        source: Source,
        target: Target,
        shape: tuple[int, ...],
        lanes: tuple[Any, ...],
        dtype: Any,
    ) -> None:
        self.e, self.source, self.target = e, source, target
        self.shape, self.lanes, self.dtype = shape, lanes, dtype

    def exchanged(self, width: int) -> None:
        """The last two axes change places, and back."""
        e, (*front, m, n) = self.e, self.shape
        lanes = (*self.lanes[:-2], self.lanes[-1], self.lanes[-2])
        shape, axis = (*front, n, m), len(front)
        given, made = (_rooms(e, shape, lanes, self.dtype, k) for k in (1, "made"))
        _turn(e, self.source, _into(e, given), self.shape, self.lanes, width)
        stages = _Stages(e, shape, lanes, axis, self.dtype)
        stages.run(_from(e, given), _into(e, made))
        _turn(e, _from(e, made), self.target, shape, lanes, width)

    def as_matrix(self) -> None:
        """The last axis as a matrix of about as many rows as columns."""
        e, (*front, n) = self.e, self.shape
        rows = 1 << ((n.bit_length() - 1) // 2)
        columns = n // rows
        axis, lanes = len(front), (*self.lanes[:-1], None, None)
        by_columns, by_rows = (*front, rows, columns), (*front, columns, rows)
        made = _rooms(e, by_columns, lanes, self.dtype, "made")
        given = _rooms(e, by_rows, lanes, self.dtype, 1)
        products = np.outer(np.arange(rows), np.arange(columns))
        turns, put = _turns(e, products / n, self.dtype), _into(e, made)

        def flat(place: Place, width: int) -> Place:
            *first, i, j = place
            return (*first, add(e.b, scale(e.b, i, width), j))

        _Stages(e, by_columns, lanes, axis, self.dtype).run(
            lambda place: self.source(flat(place, columns)),
            lambda place, pair: put(place, times(e.b, pair, turns(place[-2:]))),
        )
        width = min(rows, e.plan.inner_width)
        _turn(e, _from(e, made), _into(e, given), by_columns, lanes, width)
        _Stages(e, by_rows, lanes, axis, self.dtype).run(
            _from(e, given),
            lambda place, pair: self.target(flat(place, rows), pair),
        )


def _turn(
    e: Emitter,
    get: Source,
    put: Target,
    shape: tuple[int, ...],
    lanes: tuple[Any, ...],
    width: int,
) -> None:
    """Let the last two axes change places, square by square."""
    *front, rows, columns = shape

    def visit(square: Place) -> None:
        *first, i, j = square
        row, column = (scale(e.b, k, width) for k in (i, j))
        lines = [
            [ty.splat(e.b, part, width) for part in get(place)]
            for k in range(width)
            for place in [(*first, add(e.b, row, k), Vec(column, width))]  # type: ignore[arg-type]
        ]
        parts = (transposed_square(e.b, [line[k] for line in lines]) for k in (0, 1))
        for k, pair in enumerate(zip(*parts, strict=True)):
            place = (*first, add(e.b, column, k), Vec(row, width))  # type: ignore[arg-type]
            put(place, pair)

    squares = (*front, rows // width, columns // width)
    e.nest(squares, lanes, visit, None, COST * width)


def _rooms(
    e: Emitter, shape: tuple[int, ...], lanes: tuple[Any, ...], dtype: Any, name: Any
) -> list[Memory]:
    """Scratch for pairs, which all transforms of such a shape use in turns."""
    key = "fft", shape, lanes, np.dtype(dtype), name
    if key not in e.rooms:
        e.rooms[key] = [e.scratch(shape, lanes, dtype) for _ in range(2)]
    return e.rooms[key]


class _Stages:
    """Along one axis of an array; other places are walked in vectors."""

    def __init__(
        self,
        e: Emitter,
        shape: tuple[int, ...],
        lanes: tuple[Any, ...],
        axis: int,
        dtype: Any,
    ) -> None:
        self.e, self.shape, self.lanes = e, shape, lanes
        self.axis, self.n, self.dtype = axis, shape[axis], dtype
        self.vector = len(shape) - 1 if axis < len(shape) - 1 else None

    def run(self, source: Source, target: Target) -> None:
        e, stages = self.e, radices(self.n)
        turns = _turns(e, np.arange(self.n) / self.n, self.dtype)
        rooms = [
            _rooms(e, self.shape, self.lanes, self.dtype, k)
            for k in range(min(2, len(stages) - 1))
        ]
        apart = 1
        for k, radix in enumerate(stages):
            last = k == len(stages) - 1
            put = target if last else _into(e, rooms[k % 2])
            get = source if k == 0 else _from(e, rooms[(k - 1) % 2])
            self._stage(radix, apart, get, put, None if last else turns)
            apart *= radix

    def _stage(
        self, radix: int, apart: int, get: Source, put: Target, turns: Source | None
    ) -> None:
        e, share = self.e, self.n // radix

        def visit(place: Place) -> None:
            front, t, back = self._cut(place)
            places = [(*front, add(e.b, t, k * share), *back) for k in range(radix)]
            parts = ty.match(e.b, *(part for place in places for part in get(place)))
            numbers = list(zip(parts[::2], parts[1::2], strict=True))
            inside = _below(e.b, t, apart)  # and the rest, a multiple of `apart`
            whole = _minus(e.b, t, inside)
            first = add(e.b, inside, scale(e.b, whole, radix))
            for j, pair in enumerate(combined(e.b, numbers)):
                if turns is not None and j:
                    pair = times(e.b, pair, turns((scale(e.b, whole, j),)))
                put((*front, add(e.b, first, j * apart), *back), pair)

        a = self.axis
        shape = (*self.shape[:a], share, *self.shape[a + 1 :])
        e.nest(shape, self.lanes, visit, self.vector, COST)

    def _cut(self, place: Place) -> tuple[Place, Any, Place]:
        return place[: self.axis], place[self.axis], place[self.axis + 1 :]


def radices(n: int) -> list[int]:
    """Fours, and a two at the end if n is not a power of four.

    >>> radices(32)
    [4, 4, 2]
    """
    if n == 1:
        return [1]
    bits = n.bit_length() - 1
    return [4] * (bits // 2) + [2] * (bits % 2)


def _below(b: ty.Builder, t: Index, apart: int) -> Index:
    """What is left of a number after division by a power of two."""
    if isinstance(t, int) or apart == 1:
        return t % apart if isinstance(t, int) else 0
    return b.and_(as_value(b, t), ir.Constant(ty.I64, apart - 1))


def _minus(b: ty.Builder, x: Index, y: Index) -> Index:
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    return x if y == 0 else b.sub(as_value(b, x), as_value(b, y))


def combined(b: ty.Builder, x: list[Pair]) -> list[Pair]:
    """The transform of one, two or four numbers."""
    if len(x) == 1:
        return x
    if len(x) == 2:
        return [_plus(b, x[0], x[1]), _less(b, x[0], x[1])]
    even, odd = combined(b, [x[0], x[2]]), combined(b, [x[1], x[3]])
    (re, im), (across, up) = even[1], odd[1]
    right = b.fadd(re, up), b.fsub(im, across)  # minus i times the other
    left = b.fsub(re, up), b.fadd(im, across)
    return [_plus(b, even[0], odd[0]), right, _less(b, even[0], odd[0]), left]


def _plus(b: ty.Builder, x: Pair, y: Pair) -> Pair:
    return b.fadd(x[0], y[0]), b.fadd(x[1], y[1])


def _less(b: ty.Builder, x: Pair, y: Pair) -> Pair:
    return b.fsub(x[0], y[0]), b.fsub(x[1], y[1])


def times(b: ty.Builder, x: Pair, y: Pair) -> Pair:
    a, c, d, f = ty.match(b, *x, *y)
    product = lambda p, q: b.fmul(p, q, flags=el.CONTRACT)
    re = b.fsub(product(a, d), product(c, f), flags=el.CONTRACT)
    return re, b.fadd(product(a, f), product(c, d), flags=el.CONTRACT)


RULES = {"onescan_fft": fft}
