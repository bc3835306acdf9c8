"""Products of integers of one byte, two or four terms of a sum at a time.

    operands:  neighbours along the sum, side by side in a word of 32 bits
    product:   of such words, whose terms x86 adds up in one instruction

Two terms of 16 bits each (`pmaddwd`) are in all such processors, four of 8 bits
(`vpdpbusd`) in newer ones.  A product of numbers of 32 bits takes two instructions, for
one term.  What is summed along its rows is copied as it lies; rows of other matrices
are put together.  No sum of two products of bytes overflows 16 + 16 bits.

Of four terms one side is unsigned: 128 more than it should be, where neither is; 128
times the sum of each column is taken from the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, Vec, add, scale
from onescan.emit.convert import convert
from onescan.emit.dot import Product
from onescan.emit.emitter import Emitter
from onescan.emit.math.features import PAIRS, QUADS, has
from onescan.emit.terms import multiply_add
from onescan.loop import Equation

SIGNED, UNSIGNED = np.dtype(np.int8), np.dtype(np.uint8)
TOTALS = (np.dtype(np.int32), np.dtype(np.uint32))
WORD = np.dtype(np.int32)
I16 = ir.IntType(16)
#: rows and columns from which it pays to put the operands side by side
FEWEST = 4
#: what makes an unsigned byte of a signed one, 128 more, in each byte of a word
FLIP = 0x80808080


def of_bytes(e: Emitter, eqn: Equation, operands: Sequence[Array]) -> Array | None:
    """The product, if it is of this kind, with vectors along its dimensions."""
    kind = _kind(e, eqn)
    if kind is None:
        return None
    x, y = map(e.once, operands)
    return kind(
        e, eqn.params["dimension_numbers"], x, y, e.fresh(eqn.outvars[0])
    ).emit()


def _kind(e: Emitter, eqn: Equation) -> type[Several] | None:
    if e.plan.vector is not None or e.plan.inner_width < 4:
        return None
    types = [np.dtype(v.aval.dtype) for v in (*eqn.invars, *eqn.outvars)]
    (along, _), _ = eqn.params["dimension_numbers"]
    if {*types[:2]} - {SIGNED, UNSIGNED} or types[2] not in TOTALS or len(along) != 1:
        return None
    depth = eqn.invars[0].aval.shape[along[0]]
    sizes = (prod(e.plan.local_shape(v)) for v in eqn.invars)
    if not depth or min(size // depth for size in sizes) < FEWEST:
        return None
    if has(e.b, QUADS) and depth % 4 == 0 and SIGNED in types[:2]:
        return Quads
    return Pairs if has(e.b, PAIRS) and depth % 2 == 0 else None


class Several(Product):
    """A product whose numbers are several terms each.

    Where one sum has several of them in a row, LLVM takes the addition from the
    instruction that does it all, for the sake of its latency.
    """

    at_once = 1
    count: int  # of terms in a word
    by_width: Mapping[int, str]  # the instruction, by the words of a vector

    def __init__(
        self, e: Emitter, numbers: Any, x: Array, y: Array, target: Array
    ) -> None:
        super().__init__(e, numbers, x, y, target)
        self.x, self.y = (
            self.side_by_side(operand, along, side)
            for side, (operand, (along,)) in enumerate(((x, self.cx), (y, self.cy)))
        )
        self.sizes = [self.x.shape[self.cx[0]]]

    @property
    def bits(self) -> int:
        """Of a term."""
        return 32 // self.count

    def side_by_side(self, array: Array, along: int, side: int) -> Array:
        """The same numbers, several of a dimension in a word."""
        words = array.shape[along] // self.count
        shape = (*array.shape[:along], words, *array.shape[along + 1 :])
        if array.stride(along) == 1:
            memory = self._copied(array, along, side)
        else:
            memory = self._put_together(array, along, side, shape)
        return self.e.stored(memory, shape, array.lanes)

    def _copied(self, array: Array, along: int, side: int) -> Memory:
        """Where the numbers lie side by side."""
        e, term = self.e, np.dtype(f"int{self.bits}")
        shape, strides, size = array.shape, [0] * len(array.shape), 1
        for i in (along, *(i for i in reversed(range(len(shape))) if i != along)):
            strides[i], size = size, size * shape[i]
        kind = ir.ArrayType(ty.memory_type(term), size)
        pointer = e.allocated(kind, size * term.itemsize)
        memory = Memory(pointer, term, tuple(strides), 0, 64)

        def put(index: tuple[Index, ...]) -> None:
            value = convert(e.b, array.at(index), array.dtype, term)
            memory.store(e.b, index, self.prepared(value, side))

        e.nest(shape, array.lanes, put, along, max(array.cost, 1))
        words = (1 if i == along else n // self.count for i, n in enumerate(strides))
        return replace(memory, dtype=WORD, strides=tuple(words))

    def _put_together(
        self, array: Array, along: int, side: int, shape: tuple[int, ...]
    ) -> Memory:
        """Where they are of different rows."""
        e, memory = self.e, self.e.scratch(shape, array.lanes, WORD)

        def term(place: list[Index], k: int) -> ty.Value:
            value = convert(e.b, array.at(tuple(place)), array.dtype, WORD)
            width = ty.width_of(value)
            if k < self.count - 1:
                mask = ty.constant(ty.I32, (1 << self.bits) - 1, width)
                value = e.b.and_(value, mask)
            return e.b.shl(value, ty.constant(ty.I32, k * self.bits, width))

        def put(index: tuple[Index, ...]) -> None:
            place, first = list(index), scale(e.b, index[along], self.count)
            terms = []
            for k in range(self.count):
                place[along] = add(e.b, first, k)
                terms.append(term(place, k))
            word = reduce(e.b.or_, terms)
            memory.store(e.b, index, self.prepared(word, side))

        e.nest(shape, array.lanes, put, cost=3 * self.count * max(array.cost, 1))
        return memory

    def prepared(self, value: ty.Value, side: int) -> ty.Value:
        """Terms of one side, or words of them, as the instruction has them."""
        return value

    def meet(self, x: ty.Value, y: ty.Value, total: ty.Value) -> ty.Value:
        b = self.e.b
        x, y, total = ty.match(b, x, y, total)
        name = self.by_width.get(ty.width_of(total))
        if name is not None:
            return self.by_instruction(f"llvm.x86.{name}", x, y, total)
        for k in range(self.count):
            one, other = self.term(x, k, 0), self.term(y, k, 1)
            total = multiply_add(b, self.dtype, one, other, total)
        return total

    def by_instruction(
        self, name: str, x: ty.Value, y: ty.Value, total: ty.Value
    ) -> ty.Value:
        raise NotImplementedError

    def term(self, word: ty.Value, k: int, side: int, signed: bool = True) -> ty.Value:
        """One of the terms of a word."""
        b, width = self.e.b, ty.width_of(word)
        above = ty.constant(ty.I32, 32 - self.bits * (k + 1), width)
        shift = b.ashr if signed else b.lshr
        return shift(b.shl(word, above), ty.constant(ty.I32, 32 - self.bits, width))


class Pairs(Several):
    """Two terms of 16 bits."""

    count = 2
    by_width = MappingProxyType(
        {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
    )

    def by_instruction(
        self, name: str, x: ty.Value, y: ty.Value, total: ty.Value
    ) -> ty.Value:
        b, terms = self.e.b, ir.VectorType(I16, 2 * ty.width_of(total))
        sums = _called(b, name, total.type, b.bitcast(x, terms), b.bitcast(y, terms))
        return b.add(total, sums)


class Quads(Several):
    """Four terms of 8 bits, those of one side without a sign."""

    count = 4
    by_width = MappingProxyType(
        {width: f"avx512.vpdpbusd.{32 * width}" for width in (4, 8, 16)}
    )

    def __init__(
        self, e: Emitter, numbers: Any, x: Array, y: Array, target: Array
    ) -> None:
        self.unsigned = int(y.dtype == UNSIGNED)  # the side; both may be one array
        self.raised = x.dtype == y.dtype == SIGNED
        super().__init__(e, numbers, x, y, target)
        self.too_much = self._too_much() if self.raised else None

    def prepared(self, value: ty.Value, side: int) -> ty.Value:
        if not self.raised or side != self.unsigned:
            return value
        kind = ty.element_type(value)
        return self.e.b.xor(value, ty.constant(kind, FLIP, ty.width_of(value)))

    def by_instruction(
        self, name: str, x: ty.Value, y: ty.Value, total: ty.Value
    ) -> ty.Value:
        terms = (y, x) if self.unsigned else (x, y)
        return _called(self.e.b, name, total.type, total, *terms)

    def term(self, word: ty.Value, k: int, side: int, signed: bool = True) -> ty.Value:
        return super().term(word, k, side, side != self.unsigned)

    def _too_much(self) -> Array:
        """128 times the sums of the columns."""
        e, y, (along,) = self.e, self.y, self.cy
        shape = (*y.shape[:along], 1, *y.shape[along + 1 :])
        sums = e.stored(e.scratch(shape, y.lanes, WORD), shape, y.lanes)

        def visit(index: tuple[Index, ...]) -> None:
            width = next((i.width for i in index if isinstance(i, Vec)), 0)
            zero = ty.constant(ty.I32, 0, width)
            cell = e.entry.alloca(zero.type)
            e.b.store(zero, cell)

            def step(place: tuple[Index, ...]) -> None:
                word = y.at((*index[:along], *place, *index[along + 1 :]))
                raised = ty.constant(ty.I32, FLIP, width)
                e.b.store(self.meet(raised, word, e.b.load(cell)), cell)

            e.for_each([y.shape[along]], step, 999)
            sums.memory.store(e.b, index, e.b.load(cell))  # type: ignore[union-attr]

        e.nest(shape, y.lanes, visit, cost=2 * y.shape[along])
        return sums

    def finished(self, place: tuple[Index, ...], total: ty.Value) -> ty.Value:
        if self.too_much is None:
            return total
        where: dict[int, Index] = {self.cy[0]: 0}
        where.update(zip(self.by, place, strict=False))
        where.update(zip(self.fy, place[self.columns[0] :], strict=True))
        index = tuple(where[i] for i in range(len(where)))
        return self.e.b.sub(*ty.match(self.e.b, total, self.too_much.at(index)))


def _called(b: ty.Builder, name: str, gives: ir.Type, *args: ty.Value) -> ty.Value:
    """An instruction of x86."""
    kind = ir.FunctionType(gives, [x.type for x in args])
    return b.call(b.module.globals.get(name) or ir.Function(b.module, kind, name), args)
