"""The kernel of one product of two matrices.

    for each tile of the result:
        for each stretch of the contraction:
            for each panel of columns:
                copy the panel of y
                for each block of rows:
                    sum the block in registers, then store it or add it to the result

The copies lie in the order in which the sums read them: neighbours in a column of a
matrix are so far apart that a cache has only few places for them.  Of x, a block reads
one number for each row where it reads three vectors of y, which the L2 cache
serves in time, transposed or not.  What is left over at the end of the rows and of the
columns is done by blocks of just that size, so nothing is read or written outside of
the matrices or summed twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.builder import Builder
from onescan.emit.constants import integer
from onescan.emit.flow import loop, only
from onescan.emit.math.features import allow
from onescan.emit.terms import multiply_add
from onescan.targets.cpu.products.plan import Blocks, Tiling

VOID = ir.VoidType()


def build(plan: Blocks) -> ir.Module:
    """The LLVM module of a planned product; it defines `kernel`."""
    kernel = kernel_of(plan)
    _Kernel(plan, kernel).emit()
    return kernel.module


def kernel_of(plan: Tiling) -> ir.Function:
    """The kernel of a product, to be written, in a module of its own."""
    module = ir.Module("onescan")
    allow(module, plan.features)
    kind = ir.FunctionType(VOID, [ty.PTR, ty.I64, ty.I64])
    kernel = ir.Function(module, kind, "kernel")
    kernel.attributes.add("nounwind")
    return kernel


class _Kernel:
    def __init__(self, plan: Blocks, function: ir.Function) -> None:
        self.plan, self.m, self.function = plan, plan.matrices, function
        self.element = ty.memory_type(self.m.dtype)
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.parts = _Parts(plan, function.module)

    def emit(self) -> None:
        b, plan, (buffers, first, last) = self.b, self.plan, self.function.args
        self.x, self.y, self.out = (
            b.load(b.gep(buffers, [integer(i)], source_etype=ty.PTR), typ=ty.PTR)
            for i in range(3)
        )
        self.panel = self._scratch(plan.stretch * plan.vectors * plan.width)
        with loop(self.b, first, last, 1) as tile:
            self._tile(tile)
        self.b.ret_void()

    def _scratch(self, size: int) -> ty.Value:
        pointer: Any = self.b.alloca(ir.ArrayType(self.element, size))
        pointer.align = 64
        return self.b.bitcast(pointer, ty.PTR)

    def _tile(self, tile: ty.Value) -> None:
        """One tile; the last of a row or column of them has what is left over too."""
        b, m, plan = self.b, self.m, self.plan
        down, across = plan.tiles
        i, j = b.udiv(tile, integer(across)), b.urem(tile, integer(across))
        rows = self._range(i, down, plan.tile_rows, m.rows, plan.height)
        panel = plan.vectors * plan.width
        columns = self._range(j, across, plan.tile_columns, m.columns, panel)
        self.is_last = b.icmp_signed("==", i, integer(down - 1))
        with loop(self.b, integer(0), integer(m.depth), plan.stretch) as start:
            left, whole = self.b.sub(integer(m.depth), start), integer(plan.stretch)
            is_last = self.b.icmp_signed("<", left, whole)
            depth = self.b.select(is_last, left, whole)
            with loop(self.b, *columns, panel) as column:
                self._panel(rows, start, depth, column, plan.vectors, plan.width)
            begin = m.columns - m.columns % panel
            if begin < m.columns:
                with only(self.b, self.b.icmp_signed("==", j, integer(across - 1))):
                    for vectors, width in _pieces(m.columns - begin, plan.width):
                        column = integer(begin)
                        self._panel(rows, start, depth, column, vectors, width)
                        begin += vectors * width

    def _range(
        self, k: ty.Value, count: int, size: int, total: int, unit: int
    ) -> tuple[ty.Value, ty.Value]:
        """Where the whole units of tile k of `count` begin and end."""
        b = self.b
        begin = b.mul(k, integer(size))
        is_last = b.icmp_signed("==", k, integer(count - 1))
        whole = integer(total - total % unit)
        return begin, b.select(is_last, whole, b.add(begin, integer(size)))

    def _panel(
        self,
        rows: tuple[ty.Value, ty.Value],
        start: ty.Value,
        depth: ty.Value,
        column: ty.Value,
        vectors: int,
        width: int,
    ) -> None:
        """All rows of a tile times a few vectors of columns."""
        m = self.m
        copy = self.parts.copy(m.columns, vectors * width)
        source = self._at(self.y, start, column, m.columns)
        self.b.call(copy, [source, self.panel, depth])
        is_first = self.b.icmp_signed("==", start, integer(0))
        for row, height in self._blocks(rows):
            if m.transposed:
                x = self._at(self.x, start, row, m.rows)
            else:
                x = self._at(self.x, row, start, m.depth)
            out = self._at(self.out, row, column, m.columns)
            total = self.parts.sum(height, vectors, width)
            self.b.call(total, [x, self.panel, out, depth, is_first])

    def _blocks(
        self, rows: tuple[ty.Value, ty.Value]
    ) -> Iterator[tuple[ty.Value, int]]:
        """Code for each block of rows of a tile: its first row, and how many."""
        m, height = self.m, self.plan.height
        with loop(self.b, *rows, height) as row:
            yield row, height
        if rest := m.rows % height:
            with only(self.b, self.is_last):
                yield integer(m.rows - rest), rest

    def _at(
        self, pointer: ty.Value, row: ty.Value, column: ty.Value, stride: int
    ) -> ty.Value:
        place = self.b.add(self.b.mul(row, integer(stride)), column)
        return self.b.gep(pointer, [place], inbounds=True, source_etype=self.element)


class _Parts:
    """The functions that a kernel calls, each made when it is first asked for."""

    def __init__(self, plan: Blocks, module: ir.Module) -> None:
        self.m, self.module = plan.matrices, module
        self.element = ty.memory_type(self.m.dtype)
        self.found: dict[str, ir.Function] = {}

    def _function(self, name: str, *kinds: ty.Kind) -> ir.Function:
        function = ir.Function(self.module, ir.FunctionType(VOID, kinds), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        for argument in function.args:
            if argument.type == ty.PTR:
                argument.add_attribute("noalias")
        self.found[name] = function
        return function

    def copy(self, stride: int, count: int) -> ir.Function:
        """Copies `depth` rows of `count` numbers, `stride` apart, side by side."""
        name = f"copy_{stride}_{count}"
        if name in self.found:
            return self.found[name]
        function = self._function(name, ty.PTR, ty.PTR, ty.I64)
        source, target, depth = function.args
        with self._over(function, depth) as (b, k):
            kind, align = ty.with_width(self.element, count), self.m.dtype.itemsize
            row = b.load(self._place(b, source, k, stride), typ=kind, align=align)
            b.store(row, self._place(b, target, k, count), align=align)
        b.ret_void()
        return function

    def sum(self, height: int, vectors: int, width: int) -> ir.Function:
        """Adds up a block of results: x, a panel of y, the result, depth, is first."""
        name = f"sum_{height}_{vectors}_{width}"
        if name in self.found:
            return self.found[name]
        kinds = (ty.PTR, ty.PTR, ty.PTR, ty.I64, ty.I1)
        function = self._function(name, *kinds)
        x, panel, out, depth, is_first = function.args
        m, align = self.m, self.m.dtype.itemsize
        down, along = (1, m.rows) if m.transposed else (m.depth, 1)
        kind = ty.with_width(self.element, width if width > 1 else 0)
        places = [(r, v) for r in range(height) for v in range(vectors)]
        totals: dict[tuple[int, int], ty.Value] = {}
        with self._over(function, depth) as (b, k):
            head = b.block
            for place in places:
                totals[place] = b.phi(kind)
                totals[place].add_incoming(ir.Constant(kind, None), function.blocks[0])
            ys = []
            for v in range(vectors):
                y = self._place(b, panel, k, vectors * width, v * width)
                ys.append(b.load(y, typ=kind, align=align))
            for r in range(height):
                place = self._place(b, x, k, along, r * down)
                number = b.load(place, typ=self.element, align=align)
                for v in range(vectors):
                    before = totals[r, v]
                    totals[r, v] = multiply_add(b, m.dtype, number, ys[v], before)
                    before.add_incoming(totals[r, v], head)
        store, add = (function.append_basic_block(name) for name in ("store", "add"))
        b.cbranch(is_first, store, add)
        for block in (store, add):
            b.position_at_end(block)
            for r, v in places:
                place = self._place(b, out, integer(r), m.columns, v * width)
                value = totals[r, v]
                if block is add:
                    value = b.fadd(b.load(place, typ=kind, align=align), value)
                b.store(value, place, align=align)
            b.ret_void()
        return function

    def _place(
        self,
        b: ty.Builder,
        pointer: ty.Value,
        k: ty.Value,
        stride: int,
        offset: int = 0,
    ) -> ty.Value:
        place = b.add(b.mul(k, integer(stride)), integer(offset))
        return b.gep(pointer, [place], inbounds=True, source_etype=self.element)

    @contextmanager
    def _over(self, function: ir.Function, depth: ty.Value) -> Iterator[Any]:
        """A loop of one block over the contraction; the builder goes on behind it."""
        entry, head, done = (
            function.append_basic_block(name) for name in ("entry", "head", "done")
        )
        ir.IRBuilder(entry).branch(head)
        b = Builder(head)
        k: Any = b.phi(ty.I64)
        k.add_incoming(integer(0), entry)
        yield b, k
        following = b.add(k, integer(1))
        k.add_incoming(following, head)
        b.cbranch(b.icmp_signed("<", following, depth), head, done)
        b.position_at_end(done)


def _pieces(columns: int, width: int) -> list[tuple[int, int]]:
    """Columns that are no whole panel: (vectors, width of each)."""
    found = []
    while columns:
        if columns >= width:
            found.append((columns // width, width))
            columns %= width
        width //= 2
    return found
