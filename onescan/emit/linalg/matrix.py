"""One matrix at a time: its elements, and loops over its rows and columns.

Algorithms are written once.  For a small matrix the loops are written out, and its
elements are register values; for a larger one they are loops over memory, whose code
does not grow with it.  Where vectors lie along a lane, every element is a vector of
the elements of all matrices of that lane.  Where they do not, a large matrix is
walked a vector at a time along one of its dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from llvmlite import ir

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, Vec, add, as_value, scale
from onescan.emit.convert import intrinsic, like
from onescan.emit.emitter import Emitter

#: rows up to which the loops of an algorithm are written out
UNROLLED = 8

Batch = tuple[Index, ...]


class Elements(Protocol):
    """The elements of a matrix."""

    def get(self, i: Index, j: Index) -> ty.Value: ...
    def put(self, i: Index, j: Index, value: ty.Value) -> None: ...


class InRegisters:
    """Elements whose places are known as the code is written."""

    def __init__(self) -> None:
        self.values: dict[tuple[Index, Index], ty.Value] = {}

    def get(self, i: Index, j: Index) -> ty.Value:
        return self.values[i, j]

    def put(self, i: Index, j: Index, value: ty.Value) -> None:
        self.values[i, j] = value


class InMemory:
    """Elements in memory; `place` says where an element stands."""

    def __init__(
        self,
        e: Emitter,
        memory: Memory,
        place: Callable[[Index, Index], tuple[Index, ...]],
    ) -> None:
        self.e, self.memory, self.place = e, memory, place

    def get(self, i: Index, j: Index) -> ty.Value:
        return self.memory.load(self.e.b, self.place(i, j))

    def put(self, i: Index, j: Index, value: ty.Value) -> None:
        self.memory.store(self.e.b, self.place(i, j), value)


class Given:
    """Elements of an operand, which are only read."""

    def __init__(
        self, e: Emitter, array: Array, place: Callable[[Index, Index], Batch]
    ) -> None:
        self.e, self.array, self.place = e, array, place

    def get(self, i: Index, j: Index) -> ty.Value:
        place = self.place(i, j)
        return ty.splat(self.e.b, self.array.at(place), width_at(place))

    def put(self, i: Index, j: Index, value: ty.Value) -> None:
        raise TypeError("operands stay as they are")


class Walk:
    """Loops over the rows and columns of matrices with at most `size` of them."""

    def __init__(
        self, e: Emitter, size: int, operations: float, most: int = UNROLLED
    ) -> None:
        self.e, self.size = e, size
        roomy = e.unrolled + operations <= e.unrolled_in_all
        self.unrolled = size <= most and roomy
        if self.unrolled:
            e.unrolled += int(operations)
        #: of vectors along a dimension of the matrix itself
        self.width = 1 if self.unrolled else e.plan.inner_width
        if e.plan.vector is not None:
            self.width = 1

    def each(self, start: Index, stop: Index) -> Iterator[Any]:
        """Every position from `start` up to `stop`, which may be none."""
        e = self.e
        about = (stop if isinstance(stop, int) else self.size) / 2
        if isinstance(start, int) and isinstance(stop, int):
            if self.unrolled or stop - start <= 1:
                yield from range(start, stop)
                return
            with e.loop(stop - start) as k:
                yield add(e.b, k, start)
            return
        first, last = as_value(e.b, start), as_value(e.b, stop)
        count = e.b.sub(last, first)
        some = e.b.icmp_signed(">", count, ir.Constant(ty.I64, 0))
        with e.b.if_then(some), e.loop(count, about=about) as k:
            yield e.b.add(k, first)

    def spans(self, start: Index, stop: int) -> Iterator[Any]:
        """The same a vector at a time, from the last multiple of its width on."""
        if self.width < 2:
            yield from self.each(start, stop)
            return
        b, blocks = self.e.b, -(-stop // self.width)
        if isinstance(start, int):
            first: Index = start // self.width
        else:
            first = b.udiv(start, ir.Constant(ty.I64, self.width))
        for block in self.each(first, blocks):
            yield Vec(scale(b, block, self.width), self.width)  # type: ignore[arg-type]

    def padded(self, n: int) -> int:
        """Positions that `spans` may touch."""
        return -(-n // self.width) * self.width

    def cell(self, value: ty.Value) -> Cell:
        return Cell(self.e, value)


class Cell:
    """A value that changes in the course of a loop."""

    def __init__(self, e: Emitter, value: ty.Value) -> None:
        self.e, self.place = e, e.entry.alloca(value.type)
        self.set(value)

    def get(self) -> ty.Value:
        return self.e.b.load(self.place)

    def set(self, value: ty.Value) -> None:
        self.e.b.store(value, self.place)


def matrix_by_matrix(
    e: Emitter, target: Array, visit: Callable[[Batch], None], operations: float
) -> None:
    """Run `visit` for the batch index of each matrix of `target`."""
    e.nest_in_order(
        target.shape[:-2], target.lanes[:-2], visit, target, None, int(operations)
    )


def after(e: Emitter, i: Index) -> Index:
    """The position after one."""
    return add(e.b, i, 1)


def same(e: Emitter, i: Index, j: Index, equal: ty.Value, other: ty.Value) -> ty.Value:
    """`equal` where two positions are the same, else `other`."""
    if isinstance(i, int) and isinstance(j, int):
        return equal if i == j else other
    here = e.b.icmp_signed("==", as_value(e.b, i), as_value(e.b, j))
    return e.b.select(here, equal, other)


def width_at(batch: Batch) -> int:
    """How many matrices an index of the batch stands for; 0 for one alone."""
    return max((i.width for i in batch if isinstance(i, Vec)), default=0)


def minus_product(b: ty.Builder, x: ty.Value, y: ty.Value, z: ty.Value) -> ty.Value:
    """x - y * z."""
    x, y, z = ty.match(b, x, y, z)
    return b.fsub(x, b.fmul(y, z, flags=el.CONTRACT), flags=el.CONTRACT)


def times(b: ty.Builder, x: ty.Value, y: ty.Value) -> ty.Value:
    return b.fmul(*ty.match(b, x, y), flags=el.CONTRACT)


def over(b: ty.Builder, x: ty.Value, y: ty.Value) -> ty.Value:
    return b.fdiv(*ty.match(b, x, y))


def root(b: ty.Builder, x: ty.Value) -> ty.Value:
    return intrinsic(b, "llvm.sqrt", x)


def magnitude(b: ty.Builder, x: ty.Value) -> ty.Value:
    return intrinsic(b, "llvm.fabs", x)


def reciprocal(b: ty.Builder, x: ty.Value) -> ty.Value:
    return b.fdiv(like(x, 1), x)


def chosen(b: ty.Builder, which: ty.Value, x: ty.Value, y: ty.Value) -> ty.Value:
    """x where `which` holds, else y."""
    return b.select(*ty.match(b, which, x, y))
