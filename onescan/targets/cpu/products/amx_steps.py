"""Products of a step by x86's matrix unit: what changes times weights that do not.

    before the first step:  take the weights apart, into memory from the system
    in every step:          take x apart; multiply tiles; the results stand in scratch
    after the last:         give the memory back

Where a result is infinite or NaN (see `amx.py`), the rows it was computed with go
through a plain loop of multiplications and additions, and so does everything where the
system has no memory to give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Vec, add, as_value, scale
from onescan.emit.constants import integer, positions
from onescan.emit.elementwise import CONTRACT
from onescan.emit.emitter import Emitter
from onescan.targets.cpu import heap
from onescan.targets.cpu.products import amx
from onescan.targets.cpu.products.amx import DEEP, ROW, SIDE, STEP, TILE
from onescan.targets.cpu.products.amx_tiles import watcher
from onescan.targets.cpu.products.steps import Product, tiled

#: blocks of a product among which fetching ahead is divided
FEWEST_BLOCKS = 4
#: about how many operations the sum of one result is, in the plain loop
PLAIN = 64

#: where a tile begins along a dimension, and how many positions are inside the matrix
Span = tuple[Index, int]


@dataclass(frozen=True)
class Weights:
    """A matrix taken apart."""

    start: ty.Value
    pieces: ty.Value  # memory for what it is multiplied with
    given: ty.Value  # whether there is memory at all


@contextmanager
def unit(e: Emitter, constant: Callable[[Any], Array]) -> Iterator[None]:
    """Make the unit and the weights ready for the steps emitted inside."""
    wanted: dict[tuple[Any, bool], Product] = {}
    for eqn in e.plan.loop.body.jaxpr.eqns:
        if product := tiled(e.plan, eqn):
            wanted[product.weights, product.transposed] = product
    if not wanted:
        yield
        return
    b = e.b
    sizes = [-(-p.columns // SIDE) * amx.stripe_bytes(p.depth) for p in wanted.values()]
    pieces = max(2 * amx.stripe_bytes(p.depth) for p in wanted.values())
    memory = heap.allocate(b, sum(sizes) + pieces)
    given = b.icmp_unsigned("!=", memory, ir.Constant(ty.PTR, None))
    start = pieces
    for (key, product), size in zip(wanted.items(), sizes, strict=True):
        e.weights[key] = Weights(_at(b, memory, start), memory, given)
        start += size
        with b.if_then(given):
            _take_weights_apart(e, product, constant(product.weights), e.weights[key])
    amx.configure(b)
    yield
    amx.release(e.b)
    heap.free(e.b, memory)


def by_unit(e: Emitter, product: Product, x: Array, y: Array) -> Array:
    """The product of a step, a stripe of rows or two at a time."""
    stripes, columns = -(-product.rows // SIDE), -(-product.columns // SIDE)
    shape = stripes * SIDE, columns * SIDE  # whole tiles
    memory = e.scratch(shape, (None, None), np.float32)
    lanes = (x.lanes[0], None)
    target = e.stored(memory, (product.rows, product.columns), lanes)
    whole = product.rows // SIDE
    parts = [(0, whole // 2, 2 * SIDE), (whole - whole % 2, whole % 2, SIDE)]
    parts.append((whole, 1, product.rows % SIDE))
    work = _Work(e, product, x, y, target)
    for stripe, count, rows in parts:
        if count and rows:
            visit = partial(work.rows, stripe, rows, count)
            e.for_each([count], lambda index, visit=visit: visit(*index), 999)
    return target


class _Work:
    """A product of a step, seen from some of its rows."""

    def __init__(
        self, e: Emitter, product: Product, x: Array, y: Array, target: Array
    ) -> None:
        self.e, self.product, self.x, self.y, self.target = e, product, x, y, target
        self.weights = e.weights[product.weights, product.transposed]
        self.odd = e.entry.alloca(ty.I1)
        self.columns = -(-product.columns // SIDE)

    def rows(self, stripe: int, rows: int, count: int, number: Index) -> None:
        """So many rows, from a stripe and `number` of `count` times as many on."""
        e = self.e
        first = add(e.b, scale(e.b, number, rows), stripe * SIDE)
        e.b.store(ir.Constant(ty.I1, 1), self.odd)
        with e.b.if_then(self.weights.given, likely=True):
            self._take_apart(first, rows)
            e.b.store(self._multiplied(first, rows, (number, count)), self.odd)
        with e.b.if_then(e.b.load(self.odd), likely=False):
            self._plainly(first, rows)

    def _take_apart(self, first: Index, rows: int) -> None:
        """The stripes of x; rows past the last are whatever stands there."""
        e, product = self.e, self.product
        for steps, blocks, depth in _segments(product.depth, DEEP):

            def visit(
                index: tuple[Index, ...], steps: int = steps, depth: int = depth
            ) -> None:
                stripe, row, block = index
                block = add(e.b, block, steps)
                at = add(e.b, first, add(e.b, scale(e.b, stripe, SIDE), row))
                k = scale(e.b, block, DEEP)
                low = _numbers(e, self.x, at, k, depth)
                high = _numbers(e, self.x, at, add(e.b, k, SIDE), depth - SIDE)
                start = _place(e, product, stripe, block)
                place = add(e.b, start, scale(e.b, row, ROW))
                _put(e, low, high, self.weights.pieces, place)

            e.for_each([-(-rows // SIDE), min(rows, SIDE), blocks], visit, 999)

    def _multiplied(self, first: Index, rows: int, part: tuple[Index, int]) -> ty.Value:
        """Multiply block by block, and tell whether a result is infinite or NaN.

        Between blocks, memory of the next step is fetched.
        """
        e, b, down = self.e, self.e.b, -(-rows // SIDE)
        across = amx.TOTALS // down
        apart = amx.stripe_bytes(self.product.depth)
        deep = -(-self.product.depth // DEEP)
        assert self.target.memory is not None
        row = _at(b, self.target.memory.pointer, scale(b, first, self.columns * ROW))
        number, parts = part
        ahead = []
        if self.columns // across * parts >= FEWEST_BLOCKS:
            ahead, e.ahead = e.ahead, []
        for start, count, width in _segments(self.columns, across):
            block = amx.block(e.function.module, down, width)

            def visit(
                index: tuple[Index, ...],
                start: int = start * across,
                count: int = count,
                width: int = width,
                block: ir.Function = block,
            ) -> None:
                (group,) = index
                for span in ahead if not start else ():
                    here = add(b, scale(b, number, count), group)
                    span.fetch(b, here, parts * count)
                column = add(b, scale(b, group, width), start)
                weights = _at(b, self.weights.start, scale(b, column, apart))
                out = _at(b, row, scale(b, column, ROW))
                steps = integer(apart), integer(deep), integer(self.columns * ROW)
                operands = [self.weights.pieces, steps[0], weights, steps[0], steps[1]]
                b.call(block, [*operands, out, steps[2]])

            e.for_each([count], visit, 999)
        watch = watcher(e.function.module, self.columns * ROW)
        return b.call(watch, [row, integer(rows), integer(self.product.columns)])

    def _plainly(self, first: Index, rows: int) -> None:
        """The same by multiplications and additions, one after the other.

        Results that are finite stay, so that they do not depend on what is beside them.
        """
        e, product, memory = self.e, self.product, self.target.memory
        assert memory is not None

        def visit(index: tuple[Index, ...]) -> None:
            row, column = add(e.b, first, index[0]), index[1]
            width = column.width if isinstance(column, Vec) else 0
            zero = ty.constant(ty.F32, 0, width)
            cell = e.entry.alloca(zero.type)
            e.b.store(zero, cell)
            with e.loop(product.depth) as k:
                place = (column, k) if product.transposed else (k, column)
                x, y = ty.match(e.b, self.x.at((row, k)), self.y.at(place))
                total = e.b.fmul(x, y, flags=CONTRACT)
                total = e.b.fadd(total, e.b.load(cell), flags=CONTRACT)
                e.b.store(total, cell)
            before = memory.load(e.b, (row, column))
            nothing = e.b.fmul(before, ty.constant(ty.F32, 0, width))
            given = ty.splat(e.b, self.weights.given, width)
            stays = e.b.and_(given, e.b.fcmp_ordered("ord", nothing, nothing))
            memory.store(e.b, (row, column), e.b.select(stays, before, e.b.load(cell)))

        e.nest((rows, product.columns), (None, None), visit, cost=PLAIN)


# taking apart


def _take_weights_apart(
    e: Emitter, product: Product, y: Array, weights: Weights
) -> None:
    """The stripes of the weights; columns past the last are zero."""
    for first, count, columns in _segments(product.columns, SIDE):
        for steps, blocks, depth in _segments(product.depth, DEEP):

            def visit(
                index: tuple[Index, ...],
                first: int = first,
                columns: int = columns,
                steps: int = steps,
                depth: int = depth,
            ) -> None:
                stripe, block = add(e.b, index[0], first), add(e.b, index[1], steps)
                place = _place(e, product, stripe, block)
                column, k = scale(e.b, stripe, SIDE), scale(e.b, block, DEEP)
                spans = (k, depth), (column, columns)
                for low, high, row in _tile(e, y, *spans, product.transposed):
                    there = add(e.b, place, scale(e.b, row, ROW))
                    _put(e, low, high, weights.start, there)

            e.for_each([count, blocks], visit, 999)


def _tile(
    e: Emitter, y: Array, steps: Span, columns: Span, transposed: bool
) -> Iterator[tuple[ty.Value, ty.Value, Index]]:
    """The pairs of vectors of a tile, and which of its rows they are."""
    (k, depth), (column, count) = steps, columns

    def pair(row: Index, low: int, high: int) -> tuple[ty.Value, ty.Value, Index]:
        at = add(e.b, k, row)
        further = add(e.b, at, SIDE)
        numbers = (
            _numbers(e, y, at, column, low, transposed),
            _numbers(e, y, further, column, high, transposed),
        )
        return *numbers, row

    if depth == DEEP:
        with e.loop(SIDE) as row:
            yield pair(row, count, count)
        return
    for row in range(SIDE):
        yield pair(row, count * (row < depth), count * (row + SIDE < depth))


def _numbers(
    e: Emitter,
    matrix: Array,
    row: Index,
    first: Index,
    count: int,
    transposed: bool = False,
) -> ty.Value:
    """16 neighbours of a row, of which `count` are inside the matrix; the rest is 0.

    They are neighbours in a column, and far apart, where a matrix is transposed.
    """

    def at(start: int, width: int) -> ty.Value:
        here = add(e.b, first, start)
        along: Index = Vec(here, width) if width > 1 else here  # type: ignore[arg-type]
        return matrix.at((along, row) if transposed else (row, along))

    if count >= SIDE:
        return at(0, SIDE)
    whole, start, width = ty.constant(ty.F32, 0, SIDE), 0, SIDE // 2
    while width:
        if count - start >= width:
            part = ty.splat(e.b, at(start, width), 1)
            places = [min(i, width - 1) for i in range(SIDE)]
            part = e.b.shuffle_vector(part, part, positions(*places))
            inside = range(start, start + width)
            picks = [SIDE + i - start if i in inside else i for i in range(SIDE)]
            whole = e.b.shuffle_vector(whole, part, positions(*picks))
            start += width
        width //= 2
    return whole


def _put(e: Emitter, low: ty.Value, high: ty.Value, start: ty.Value, at: Index) -> None:
    """Store the rows of the tiles of three pieces."""
    for piece, row in enumerate(amx.taken_apart(e.b, low, high)):
        place = _at(e.b, start, add(e.b, at, piece * TILE))
        e.b.store(row, place, align=ROW)


def _place(e: Emitter, product: Product, stripe: Index, block: Index) -> Index:
    """Where the tiles of a stripe stand that belong to a block of 32 steps."""
    start = scale(e.b, stripe, amx.stripe_bytes(product.depth))
    return add(e.b, start, scale(e.b, block, STEP))


def _segments(n: int, size: int) -> list[tuple[int, int, int]]:
    """Whole pieces of a size, and what is left: (first, how many, size of each)."""
    found = [(0, n // size, size), (n // size, 1, n % size)]
    return [(first, count, each) for first, count, each in found if count * each]


def _at(b: ty.Builder, start: ty.Value, bytes_on: Index) -> ty.Value:
    return b.gep(start, [as_value(b, bytes_on)], source_etype=ty.I8)
