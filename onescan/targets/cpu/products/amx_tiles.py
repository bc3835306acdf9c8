"""Matrices for x86's matrix unit: squares of numbers to tiles, and tiles to results.

What the unit reads is made square by square, 32 steps of the contraction by 32 rows of
x or columns of y: a square becomes a step of two stripes (`amx`).  Where a matrix ends
inside of a square, the part that there is goes to a square of zeros first, and is taken
from there.  So nothing is read outside of a matrix, and zeros add nothing to a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.builder import Builder
from onescan.emit.constants import integer
from onescan.emit.flow import fold, loop, only
from onescan.emit.prefetch import FIRST_CACHE, ask
from onescan.emit.shuffles import transposed_square
from onescan.targets.cpu.products import amx
from onescan.targets.cpu.products.amx import VOID, moved

I1S = ir.VectorType(ty.I1, amx.SIDE)
#: rows and columns of a square, and bytes of a row of it
SQUARE = 2 * amx.SIDE
ROW = 4 * SQUARE
#: infinities and NaN, quiet or not, as the processor classifies numbers
NOT_FINITE = 0x99


@dataclass(frozen=True)
class Operand:
    """One of the two matrices of a product, `size` rows or columns of it.

    The contraction runs `along` the rows of the memory, or down its columns; an
    operand whose tiles want it along, but has it down, is `transposed`.
    """

    name: str
    size: int
    depth: int
    along: bool
    transposed: bool = False

    @property
    def stride(self) -> int:
        """Bytes from row to row."""
        return 4 * (self.depth if self.along else self.size)

    @property
    def hop(self) -> int:
        """Bytes from square to square, along the contraction."""
        return ROW if self.along else SQUARE * self.stride

    def begin(
        self, b: ty.Builder, matrix: ty.Value, position: ty.Value, start: ty.Value
    ) -> ty.Value:
        """Where the squares of a row or column begin, at a step of the contraction."""
        row, column = (position, start) if self.along else (start, position)
        place = b.add(b.mul(row, integer(self.stride)), b.mul(column, integer(4)))
        return moved(b, matrix, place)


def function(
    module: ir.Module, name: str, *kinds: ty.Kind, gives: ty.Kind = VOID
) -> ir.Function:
    """A function of the module's own."""
    made = ir.Function(module, ir.FunctionType(gives, kinds), name)
    made.linkage = "internal"
    made.attributes.add("noinline")
    made.attributes.add("nounwind")
    return made


def as_written(made: ir.Function) -> None:
    """Have LLVM translate a function in no time: it runs seldom, or others for it."""
    made.attributes.add("noinline")
    made.attributes.add("optnone")


def scratch(b: ty.Builder, size: int) -> ty.Value:
    """So many bytes on the stack, as tiles want them."""
    pointer = b.alloca(ir.ArrayType(ty.I8, size))
    pointer.align = amx.ROW
    return b.bitcast(pointer, ty.PTR)


# operands


def packer(module: ir.Module, operand: Operand, apart: int) -> ir.Function:
    """Makes two stripes of an operand, `apart` bytes from each other.

    ``void(ptr operand, i64 first row or column, i64 first step of the contraction,
    i64 number of squares, ptr stripes)``.
    """
    kinds = ty.PTR, ty.I64, ty.I64, ty.I64, ty.PTR
    made = function(module, f"pack_{operand.name}", *kinds)
    matrix, position, start, count, target = made.args
    b = Builder(made.append_basic_block("entry"))
    room, transposed = (scratch(b, SQUARE * ROW) for _ in range(2))
    turn = _turner(module) if operand.transposed else None
    stride, begin = integer(operand.stride), operand.begin(b, matrix, position, start)
    there = b.sub(integer(operand.size), position)
    deep = b.sub(integer(operand.depth), start)
    ragged = _ragged(module)
    with loop(b, integer(0), count) as step:
        source = moved(b, begin, b.mul(step, integer(operand.hop)))
        left = b.sub(deep, b.mul(step, integer(amx.DEEP)))
        lines, length = (there, left) if operand.along else (left, there)
        is_whole = b.icmp_signed(">=", least(b, lines, length), integer(SQUARE))
        place = moved(b, target, b.mul(step, integer(amx.STEP)))
        with only(b, b.xor(is_whole, ir.Constant(ty.I1, 1))):
            b.call(ragged, [source, stride, lines, length, room])
        source = b.select(is_whole, source, room)
        line = b.select(is_whole, stride, integer(ROW))
        if operand.transposed:
            b.call(turn, [source, line, transposed])
            source, line = transposed, integer(ROW)
        _pack(b, operand, source, line, place, apart)
    b.ret_void()
    return made


def _pack(
    b: ty.Builder,
    operand: Operand,
    source: ty.Value,
    stride: ty.Value,
    place: ty.Value,
    apart: int,
) -> None:
    """A square whose rows are, along, rows of tiles, or, down, halves of them."""
    half = b.mul(stride, integer(amx.SIDE))
    with loop(b, integer(0), integer(amx.SIDE)) as k:
        upper = moved(b, source, b.mul(k, stride))
        lower = moved(b, upper, half)
        pairs = [
            [_load(b, moved(b, line, integer(c * amx.ROW))) for c in range(2)]
            for line in (upper, lower)
        ]
        if not (operand.along or operand.transposed):
            pairs = zip(*pairs, strict=True)
        target = moved(b, place, b.mul(k, integer(amx.ROW)))
        for stripe, pair in enumerate(pairs):
            for piece, row in enumerate(amx.taken_apart(b, *pair)):
                to = moved(b, target, integer(stripe * apart + piece * amx.TILE))
                b.store(row, to, align=amx.ROW)


def _turner(module: ir.Module) -> ir.Function:
    """Makes the columns of a square rows, a quarter at a time.

    ``void(ptr source, i64 bytes from row to row, ptr square)``.
    """
    made = function(module, "turn", ty.PTR, ty.I64, ty.PTR)
    source, stride, square = made.args
    b = Builder(made.append_basic_block("entry"))
    with (
        loop(b, integer(0), integer(SQUARE), amx.SIDE) as row,
        loop(b, integer(0), integer(SQUARE), amx.SIDE) as column,
    ):
        line = moved(b, source, b.add(b.mul(row, stride), b.mul(column, integer(4))))
        rows = []
        for _ in range(amx.SIDE):
            rows.append(_load(b, line))
            line = moved(b, line, stride)
        place = moved(
            b, square, b.add(b.mul(column, integer(ROW)), b.mul(row, integer(4)))
        )
        for k, values in enumerate(transposed_square(b, rows)):
            b.store(values, moved(b, place, integer(k * ROW)), align=amx.ROW)
    b.ret_void()
    return made


def _ragged(module: ir.Module) -> ir.Function:
    """Copies what there is of a square, and zeros for what there is not.

    ``void(ptr source, i64 bytes from row to row, i64 rows, i64 columns, ptr room)``,
    where rows and columns may be more than those of a square.
    """
    if "ragged" in module.globals:
        return module.globals["ragged"]
    made = function(module, "ragged", ty.PTR, ty.I64, ty.I64, ty.I64, ty.PTR)
    as_written(made)
    source, stride, rows, columns, room = made.args
    b = Builder(made.append_basic_block("entry"))
    masks = masks_of(b, columns)
    with loop(b, integer(0), integer(SQUARE)) as k:
        # rows that are not there are read with nothing of them taken
        is_there = b.icmp_signed("<", k, rows)
        line = moved(b, source, b.mul(b.select(is_there, k, integer(0)), stride))
        for c, mask in enumerate(masks):
            mask = b.and_(mask, ty.splat(b, is_there, amx.SIDE))
            found = masked_load(b, moved(b, line, integer(c * amx.ROW)), mask)
            place = b.add(b.mul(k, integer(ROW)), integer(c * amx.ROW))
            b.store(found, moved(b, room, place), align=amx.ROW)
    b.ret_void()
    return made


class Fetching:
    """A chore: asking for memory that is wanted soon, a little at each step.

    Its arguments are a pointer to an operand's squares that are packed next, of each of
    which it asks for `rows` rows, and one to the square of the result that comes next,
    whose rows are `stride` bytes apart.
    """

    name = "fetch"
    kinds: Sequence[ty.Kind] = (ty.PTR, ty.PTR)

    def __init__(self, operand: Operand, rows: int, stride: int, steps: int) -> None:
        self.rows, self.operand = rows, operand
        self.results, self.stride = -(-SQUARE // steps), stride
        self.weight = 2 * (self.rows + self.results)

    def begin(self, b: ty.Builder, arguments: Sequence[ty.Value]) -> None:
        self.square, self.result = arguments

    def step(self, b: ty.Builder, number: ty.Value) -> Iterator[int]:
        square = moved(b, self.square, b.mul(number, integer(self.operand.hop)))
        yield from _fetch(b, square, self.rows, self.operand.stride, to_write=False)
        hop = self.results * self.stride
        result = moved(b, self.result, b.mul(number, integer(hop)))
        yield from _fetch(b, result, self.results, self.stride, to_write=True)


def _fetch(
    b: ty.Builder, line: ty.Value, rows: int, stride: int, to_write: bool
) -> Iterator[int]:
    """Ask for rows of a square, which need not be there."""
    for _ in range(rows):
        for c in range(2):
            ask(b, moved(b, line, integer(c * amx.ROW)), to_write, FIRST_CACHE)
            yield 1
        line = moved(b, line, integer(stride))


# results


def putter(module: ir.Module, stride: int) -> ir.Function:
    """Brings what there is of a square to the result, whose rows are `stride` apart.

    ``void(ptr square, ptr result, i64 rows, i64 columns, i1 is added)``, where rows and
    columns may be more than those of a square; it is stored, or added to what is there.
    """
    made = function(module, "put", ty.PTR, ty.PTR, ty.I64, ty.I64, ty.I1)
    square, result, rows, columns, is_added = made.args
    b = Builder(made.append_basic_block("entry"))
    masks = masks_of(b, columns)
    is_added = ty.splat(b, is_added, amx.SIDE)
    added = [b.and_(mask, is_added) for mask in masks]
    with loop(b, integer(0), least(b, rows, integer(SQUARE))) as k:
        for c, mask in enumerate(masks):
            line = moved(b, square, b.add(b.mul(k, integer(ROW)), integer(c * amx.ROW)))
            place = moved(
                b, result, b.add(b.mul(k, integer(stride)), integer(c * amx.ROW))
            )
            value = b.load(line, typ=amx.F32S, align=amx.ROW)
            value = b.fadd(value, masked_load(b, place, added[c]))
            masked_store(b, value, place, mask)
    b.ret_void()
    return made


def watcher(module: ir.Module, stride: int) -> ir.Function:
    """Looks at results, in rows `stride` bytes apart.

    ``i1(ptr result, i64 rows, i64 columns)``: whether one is infinite or NaN.
    """
    name = f"watch_{stride}"
    if name in module.globals:
        return module.globals[name]
    made = function(module, name, ty.PTR, ty.I64, ty.I64, gives=ty.I1)
    result, rows, columns = made.args
    b = Builder(made.append_basic_block("entry"))
    none = ir.Constant(I1S, None)
    whole = b.and_(columns, integer(-SQUARE))
    masks = masks_of(b, b.sub(columns, whole))
    with fold(b, integer(0), rows, 1, none) as (k, found):
        line = moved(b, result, b.mul(k, integer(stride)))
        with fold(b, integer(0), whole, SQUARE, found[0]) as (column, seen):
            place = moved(b, line, b.mul(column, integer(4)))
            for c in range(2):
                values = _load(b, moved(b, place, integer(c * amx.ROW)))
                seen[0] = b.or_(seen[0], not_finite(b, values))
        line = moved(b, line, b.mul(whole, integer(4)))
        for c, mask in enumerate(masks):
            values = masked_load(b, moved(b, line, integer(c * amx.ROW)), mask)
            seen[0] = b.or_(seen[0], not_finite(b, values))
        found[0] = seen[0]
    b.ret(is_any(b, found[0]))
    return made


def not_finite(b: ty.Builder, values: ty.Value) -> ty.Value:
    """Which numbers of a vector are infinite or NaN."""
    kind = ir.FunctionType(I1S, [amx.F32S, ty.I32])
    classify = _intrinsic(b, "llvm.x86.avx512.fpclass.ps.512", kind)
    return b.call(classify, [values, ir.Constant(ty.I32, NOT_FINITE)])


def is_any(b: ty.Builder, mask: ty.Value) -> ty.Value:
    kind = ir.IntType(amx.SIDE)
    return b.icmp_signed("!=", b.bitcast(mask, kind), ir.Constant(kind, 0))


# vectors of which a part is there


def masks_of(b: ty.Builder, columns: ty.Value) -> list[ty.Value]:
    """Which of the columns of a square there are, for each of its two vectors."""
    limit = ty.splat(b, b.trunc(columns, ty.I32), amx.SIDE)
    order = ty.iota(ty.I32, amx.SIDE)
    second = b.add(order, ty.constant(ty.I32, amx.SIDE, amx.SIDE))
    return [b.icmp_signed("<", places, limit) for places in (order, second)]


def _load(b: ty.Builder, place: ty.Value) -> ty.Value:
    return b.load(place, typ=amx.F32S, align=4)


def masked_load(b: ty.Builder, place: ty.Value, mask: ty.Value) -> ty.Value:
    """What there is of a vector, and zeros."""
    kind = ir.FunctionType(amx.F32S, [ty.PTR, ty.I32, I1S, amx.F32S])
    load = _intrinsic(b, "llvm.masked.load.v16f32.p0", kind)
    align, zero = ir.Constant(ty.I32, 4), ir.Constant(amx.F32S, None)
    return b.call(load, [place, align, mask, zero])


def masked_store(
    b: ty.Builder, value: ty.Value, place: ty.Value, mask: ty.Value
) -> None:
    kind = ir.FunctionType(VOID, [amx.F32S, ty.PTR, ty.I32, I1S])
    store = _intrinsic(b, "llvm.masked.store.v16f32.p0", kind)
    b.call(store, [value, place, ir.Constant(ty.I32, 4), mask])


def _intrinsic(b: ty.Builder, name: str, kind: ir.FunctionType) -> ir.Function:
    return b.module.globals.get(name) or ir.Function(b.module, kind, name)


def least(b: ty.Builder, one: ty.Value, other: ty.Value) -> ty.Value:
    return b.select(b.icmp_signed("<", one, other), one, other)
