"""The kernel of one float32 product for x86's matrix unit.

    for each tile of the result:
        for each stretch of the contraction:
            for as many rows of x (or columns of y) as are kept:
                make their stripes
                for each 32 columns of y (or rows of x):
                    make their stripes
                    for each 32 that are kept:
                        multiply, and store the results or add them to the others
        if results are infinite or no numbers:
            compute these by vectors

What the unit makes of infinities, NaN and numbers near the largest one is not what
float32 arithmetic makes of them, but it is never finite (`amx`).  So it is enough to
look at the results.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.builder import Builder
from onescan.emit.constants import integer
from onescan.emit.flow import fold, loop, only
from onescan.emit.terms import multiply_add
from onescan.targets.cpu.products import amx
from onescan.targets.cpu.products.amx import moved
from onescan.targets.cpu.products.amx_plan import Stripes
from onescan.targets.cpu.products.amx_tiles import (
    ROW,
    SQUARE,
    Fetching,
    Operand,
    as_written,
    function,
    is_any,
    least,
    masked_load,
    masked_store,
    masks_of,
    not_finite,
    packer,
    putter,
    scratch,
    watcher,
)
from onescan.targets.cpu.products.gemm import kernel_of
from onescan.targets.cpu.products.plan import Matrices

Range = tuple[ty.Value, ty.Value]


def build(plan: Stripes) -> ir.Module:
    """The LLVM module of a planned product; it defines `kernel`."""
    kernel = kernel_of(plan)
    as_written(kernel)
    _Kernel(plan, kernel).emit()
    return kernel.module


class _Kernel:
    def __init__(self, plan: Stripes, kernel: ir.Function) -> None:
        self.plan, self.m, self.args = plan, plan.matrices, kernel.args
        self.b = Builder(kernel.append_basic_block("entry"))
        m, module = self.m, kernel.module
        self.apart = amx.stripe_bytes(plan.stretch)
        self.stride = 4 * m.columns
        x = Operand(
            "x", m.rows, m.depth, along=not m.transposed, transposed=m.transposed
        )
        y = Operand("y", m.columns, m.depth, along=False)
        packers = [(o, packer(module, o, self.apart)) for o in (x, y)]
        # what is kept, and what passes by; the result's bytes from square to square
        # along what is kept
        self.keep, self.make = packers if plan.keeps_x else packers[::-1]
        self.onward = SQUARE * self.stride if plan.keeps_x else ROW
        # of the operand that passes by, rows of each square to ask for at a time
        self.asked = -(-SQUARE * SQUARE // plan.kept)
        steps = plan.stretch // amx.DEEP
        fetching = Fetching(self.make[0], self.asked, self.stride, steps)
        self.block = amx.block(module, 2, 2, fetching)
        self.put, self.watch = putter(module, self.stride), watcher(module, self.stride)
        self.by_vectors = _by_vectors(module, m)

    def emit(self) -> None:
        b, (buffers, first, last) = self.b, self.args
        self.x, self.y, self.out = (
            b.load(b.gep(buffers, [integer(i)], source_etype=ty.PTR), typ=ty.PTR)
            for i in range(3)
        )
        self.kept = scratch(b, self.plan.kept // amx.SIDE * self.apart)
        self.passing = scratch(b, 2 * self.apart)
        self.sums = scratch(b, SQUARE * ROW)
        self.odd = scratch(b, 1)
        amx.configure(b)
        with loop(b, first, last) as tile:
            self._tile(tile)
        amx.release(b)
        b.ret_void()

    def _tile(self, tile: ty.Value) -> None:
        b, m, plan = self.b, self.m, self.plan
        across = integer(plan.tiles[1])
        rows = self._range(b.udiv(tile, across), plan.tile_rows, m.rows)
        columns = self._range(b.urem(tile, across), plan.tile_columns, m.columns)
        b.store(ir.Constant(ty.I1, 0), self.odd)
        with loop(b, integer(0), integer(m.depth), plan.stretch) as start:
            left = b.add(b.sub(integer(m.depth), start), integer(amx.DEEP - 1))
            steps = least(
                b, b.udiv(left, integer(amx.DEEP)), integer(plan.stretch // amx.DEEP)
            )
            self._stretch(rows, columns, start, steps)
        with only(b, b.load(self.odd, typ=ty.I1)):
            b.call(self.by_vectors, [self.x, self.y, self.out, *rows, *columns])

    def _range(self, k: ty.Value, size: int, total: int) -> Range:
        """Where tile k begins and ends."""
        begin = self.b.mul(k, integer(size))
        return begin, least(self.b, self.b.add(begin, integer(size)), integer(total))

    def _stretch(
        self, rows: Range, columns: Range, start: ty.Value, steps: ty.Value
    ) -> None:
        """What one stretch of the contraction gives to a tile."""
        b, plan = self.b, self.plan
        self.steps, self.is_added = steps, b.icmp_signed("!=", start, integer(0))
        end = b.add(start, integer(plan.stretch))
        is_last = b.icmp_signed(">=", end, integer(self.m.depth))
        kept, passing = self._ordered(rows, columns)
        first, last = passing
        keep, make = self._ordered(self.x, self.y)
        with loop(b, kept[0], kept[1], plan.kept) as group:
            end = least(b, b.add(group, integer(plan.kept)), kept[1])
            with loop(b, group, end, SQUARE) as place:
                target = self._kept(b.sub(place, group))
                b.call(self.keep[1], [keep, place, start, steps, target])
            with loop(b, first, last, SQUARE) as other:
                b.call(self.make[1], [make, other, start, steps, self.passing])
                stop = least(b, b.add(other, integer(SQUARE)), last)
                following = least(b, stop, b.sub(last, integer(1)))
                fetched = self.make[0].begin(b, make, following, start)
                with loop(b, group, end, SQUARE) as place:
                    done = b.sub(place, group)
                    x, y = self._ordered(self._kept(done), self.passing)
                    row, column = self._ordered(place, other)
                    on = b.mul(b.udiv(done, integer(SQUARE)), integer(self.asked))
                    on = b.mul(on, integer(self.make[0].stride))
                    self._square(x, y, row, column, moved(b, fetched, on))
                with only(b, is_last):
                    self._watch(*self._ordered((group, end), (other, stop)))

    def _ordered(self, one: Any, other: Any) -> tuple[Any, Any]:
        """From x and y to what is kept and what passes by, and back."""
        return (one, other) if self.plan.keeps_x else (other, one)

    def _kept(self, position: ty.Value) -> ty.Value:
        """Where the stripes of a row or column of the group begin."""
        place = self.b.mul(position, integer(self.apart // amx.SIDE))
        return moved(self.b, self.kept, place)

    def _out(self, row: ty.Value, column: ty.Value) -> ty.Value:
        b = self.b
        place = b.add(b.mul(row, integer(self.stride)), b.mul(column, integer(4)))
        return moved(b, self.out, place)

    def _square(
        self,
        x: ty.Value,
        y: ty.Value,
        row: ty.Value,
        column: ty.Value,
        fetched: ty.Value,
    ) -> None:
        """Sums of 32 rows by 32 columns.

        The first of them are stored in place where the result has all of them.
        """
        b, m, apart = self.b, self.m, integer(self.apart)
        rows, columns = b.sub(integer(m.rows), row), b.sub(integer(m.columns), column)
        is_part = b.icmp_signed("<", least(b, rows, columns), integer(SQUARE))
        is_put = b.or_(is_part, self.is_added)
        out = self._out(row, column)
        target = b.select(is_put, self.sums, out)
        stride = b.select(is_put, integer(ROW), integer(self.stride))
        onward = moved(b, out, integer(self.onward))
        given = x, apart, y, apart, self.steps, target, stride, fetched, onward
        b.call(self.block, given)
        with only(b, is_put):
            b.call(self.put, [self.sums, out, rows, columns, self.is_added])

    def _watch(self, rows: Range, columns: Range) -> None:
        """Note whether one of these results is infinite or no number."""
        b = self.b
        out = self._out(rows[0], columns[0])
        sides = [b.sub(end, begin) for begin, end in (rows, columns)]
        found = b.call(self.watch, [out, *sides])
        b.store(b.or_(b.load(self.odd, typ=ty.I1), found), self.odd)


def _by_vectors(module: ir.Module, m: Matrices) -> ir.Function:
    """The results of a tile that are not finite, as float32 arithmetic gives them.

    ``void(ptr x, ptr y, ptr result, i64 row, i64 last, i64 column, i64 last)``, where
    the last ones are those behind the tile.  The finite ones stay, so that they do not
    depend on what else is in a tile.
    """
    made = function(module, "by_vectors", ty.PTR, ty.PTR, ty.PTR, *[ty.I64] * 4)
    as_written(made)
    x, y, out, row, last_row, column, last_column = made.args
    b = Builder(made.append_basic_block("entry"))
    down, along = (1, m.rows) if m.transposed else (m.depth, 1)
    with (
        loop(b, row, last_row) as r,
        loop(b, column, last_column, amx.SIDE) as c,
    ):
        mask, _ = masks_of(b, b.sub(last_column, c))
        place = b.add(b.mul(r, integer(m.columns)), c)
        result = b.gep(out, [place], source_etype=ty.F32)
        odd = not_finite(b, masked_load(b, result, mask))
        with only(b, is_any(b, odd)):
            zero = ir.Constant(amx.F32S, None)
            with fold(b, integer(0), integer(m.depth), 1, zero) as (k, total):
                place = b.add(b.mul(r, integer(down)), b.mul(k, integer(along)))
                place = b.gep(x, [place], source_etype=ty.F32)
                number = b.load(place, typ=ty.F32, align=4)
                place = b.add(b.mul(k, integer(m.columns)), c)
                others = masked_load(b, b.gep(y, [place], source_etype=ty.F32), mask)
                total[0] = multiply_add(b, m.dtype, number, others, total[0])
            masked_store(b, total[0], result, odd)
    b.ret_void()
    return made
