"""The emitter: where the next instruction goes, loops, scratch, materialising.

Rules build `Array`s and ask the emitter for loops and scratch memory.  Small
loops are unrolled (their indices are Python ints), and LLVM then keeps scratch
that is only addressed by constants in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, At, Index, Memory, Vec, add, scale
from onescan.emit.builder import Builder
from onescan.emit.prefetch import Span
from onescan.plan.plan import Lane, Plan

#: a nest of loops with at most this many iterations, and about this many operations
#: in all of them, is unrolled
UNROLL = 16
UNROLLED_OPERATIONS = 128
#: operations of a kernel that may be unrolled before loops stay loops
UNROLLED_IN_ALL = 3000
#: fewer positions than this are done one by one: shuffles would cost more
SHORTEST = 4
#: elementwise values dearer than this (in operations) are not computed twice
CHEAP = 1
#: operations from which a value is computed for several vectors at once, and for how
#: many: one alone would wait for itself
DEAR = 16
SEVERAL = 4


class Emitter:
    """One kernel function under construction."""

    unroll, unrolled_operations, unrolled_in_all = (
        UNROLL,
        UNROLLED_OPERATIONS,
        UNROLLED_IN_ALL,
    )

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        self.plan = plan
        self.function = function
        self.entry = ir.IRBuilder(function.append_basic_block("entry"))
        start = function.append_basic_block("start")
        self.b: ty.Builder = (
            Builder(start) if plan.grid is None else ir.IRBuilder(start)
        )
        self.bases: dict[Lane, ty.Value | int] = {}
        self.stack_bytes = 0
        self.unrolled = 0
        self.body: Any = None  # the innermost body being emitted
        self.ahead: list[Span] = []  # memory that the next step will touch

    #: how much longer the code of an operation is than usual
    dear = 1
    #: whether operations that need not wait for each other should stand together
    early = False
    #: whether each step waits for the one before, and nothing else is there to do
    is_one_chain = False
    #: rules of this kind of kernel, in place of those of the table
    special: dict[str, Any] = {}  # noqa: RUF012, nobody changes it

    def sync(self) -> None:
        """Let all who work on this tile meet, before all read what one wrote."""

    def begin_at(self, block: ir.Block) -> None:
        """Go on at a block that may be reached from several places."""
        self.b.position_at_end(block)

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Code that each of those who work on a tile runs whole."""
        yield

    # loops

    @contextmanager
    def loop(self, count: int | ty.Value, unroll: int = 0) -> Any:
        """A loop whose index is an i64 from 0 up to `count`, which is not 0."""
        b = self.b
        before = b.block
        head = self.function.append_basic_block("loop")
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(ty.I64)
        index.add_incoming(ir.Constant(ty.I64, 0), before)
        yield index
        following = b.add(index, ir.Constant(ty.I64, 1))
        index.add_incoming(following, b.block)
        done = self.function.append_basic_block("done")
        end = ir.Constant(ty.I64, count) if isinstance(count, int) else count
        again = b.icmp_signed("<", following, end)
        branch = b.cbranch(again, head, done)
        if unroll and self.plan.grid is None:
            branch.set_metadata("llvm.loop", self._unroll_hint(unroll))
        b.position_at_end(done)

    def _unroll_hint(self, count: int) -> Any:
        module = self.function.module
        text = "llvm.loop.unroll.disable" if count == 1 else "llvm.loop.unroll.count"
        parts = [text] if count == 1 else [text, ir.Constant(ty.I32, count)]
        return module.add_metadata([module.add_metadata(parts)])

    def for_each(
        self,
        counts: Iterable[int],
        body: Callable[[tuple[Index, ...]], None],
        cost: int = 1,
    ) -> None:
        """Run `body` for every index below `counts`: unrolled when they are few.

        `cost` is how many operations the body is, roughly.
        """
        counts = tuple(counts)
        cost = max(cost, 1) * self.dear
        few = min(self.unroll, max(1, self.unrolled_operations // cost))
        if self.unrolled > self.unrolled_in_all:
            few = min(few, 2)
        if prod(counts) <= few:
            self.unrolled += prod(counts) * cost
            for index in product(*map(range, counts)):
                body(index)
            return
        # the innermost dimensions are unrolled as far as they are few
        inner = len(counts)
        while inner > 1 and prod(counts[inner - 1 :]) <= few // 4:
            inner -= 1
        self._nested(counts, inner, (), body)

    def _nested(self, counts: Any, inner: int, done: Any, body: Any) -> None:
        depth = len(done)
        if depth == inner:
            for index in product(*map(range, counts[inner:])):
                body((*done, *index))
        elif counts[depth] == 1:
            self._nested(counts, inner, (*done, 0), body)
        elif counts[depth] > 0:
            with self.loop(counts[depth]) as index:
                self._nested(counts, inner, (*done, index), body)

    def nest(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Callable[[tuple[Index, ...]], None],
        vector: int | None = -1,
        cost: int = 1,
    ) -> None:
        """Visit every element of a local shape, a vector at a time.

        The vector lies along the vector lane if there is one, else along
        dimension `vector` (None: no vectors there, -1: the last).
        """
        several = SEVERAL if cost >= DEAR else 1
        for counts, place in self._segments(shape, lanes, vector, several):
            self.for_each(counts, lambda index, place=place: body(place(index)), cost)

    def nest_in_order(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Callable[[tuple[Index, ...]], None],
        target: Array,
        vector: int | None = -1,
    ) -> None:
        """As `nest`, where two visits may meet in one place of `target`."""
        self.nest(shape, lanes, body, vector)

    def nest_in_groups(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Callable[[list[tuple[Index, ...]]], None],
        vector: int | None = -1,
        most: int = 4,
    ) -> None:
        """As `nest`, with up to `most` neighbours at once, to hide latencies."""
        for counts, place in self._segments(shape, lanes, vector):
            *outer, last = counts or (1,)
            size = min(most, last)

            def visit(index: Any, first: int, size: int, place: Any = place) -> None:
                *front, block = index
                base = add(self.b, scale(self.b, block, size), first)
                group = [(*front, add(self.b, base, k)) for k in range(size)]
                body([place(i) if counts else place(()) for i in group])

            whole = last - last % size
            self.for_each(
                [*outer, whole // size],
                lambda index, size=size, visit=visit: visit(index, 0, size),
                most,
            )
            if whole < last:
                self.for_each(
                    [*outer, 1],
                    lambda index, visit=visit, whole=whole, last=last: visit(
                        index, whole, last - whole
                    ),
                    most,
                )

    def _segments(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        vector: int | None,
        several: int = 1,
    ) -> Iterator[tuple[list[int], Callable[[Any], tuple[Index, ...]]]]:
        """Loop counts, and from loop indices to an index, for each vector width."""
        if 0 in shape:
            return
        held = next((i for i, l in enumerate(lanes) if l and l.vector), None)
        if held is not None:
            vec = Vec(0, shape[held])
            rest = [*shape[:held], *shape[held + 1 :]]
            yield rest, lambda index: (*index[:held], vec, *index[held:])
            return
        if not shape or self.plan.width < 2 or vector is None:
            yield list(shape), lambda index: tuple(index)
            return
        along, start = vector % len(shape), 0
        for width in self.widths(shape[along], several):
            count = (shape[along] - start) // width

            def place(index: Any, start: int = start, width: int = width) -> Any:
                *outer, block = index
                base = add(self.b, scale(self.b, block, width), start)
                part = Vec(base, width) if width > 1 else base  # type: ignore[arg-type]
                return (*outer[:along], part, *outer[along:])

            yield [*shape[:along], *shape[along + 1 :], count], place
            start += count * width

    def widths(self, n: int, several: int = 1) -> list[int]:
        """Vector widths that cover n positions, widest first."""
        width, found = self.plan.width * several if n >= SHORTEST else 1, []
        while n:
            if n >= width:
                found.append(width)
                n %= width
            width //= 2
        return found

    # memory

    def scratch(
        self, shape: tuple[int, ...], lanes: tuple[Lane | None, ...], dtype: Any
    ) -> Memory:
        """Fresh stack memory for an array; a vector lane lies innermost."""
        dtype = np.dtype(dtype)
        order = sorted(
            range(len(shape)),
            key=lambda i: (bool(lanes[i] and lanes[i].vector), i),  # type: ignore
        )
        strides, size = [0] * len(shape), 1
        for i in reversed(order):
            strides[i] = size
            size *= shape[i]
        kind = ir.ArrayType(ty.memory_type(dtype), max(size, 1))
        pointer: Any = self.entry.alloca(kind)
        pointer.align = 64
        self.stack_bytes += size * dtype.itemsize
        return Memory(_opaque(pointer), dtype, tuple(strides), 0, 64)

    def lazy(
        self,
        var: Any,
        at: At,
        operands: Iterable[Array] = (),
        cost: int = 0,
        dtype: Any = None,
        moving: bool = False,
    ) -> Array:
        """The value of `var`, computed where it is pulled.

        It is `moving` where `at` uses what this step computed, besides operands.
        """
        operands = tuple(operands)
        steady = bool(operands) and not moving and all(a.steady for a in operands)
        return Array(
            shape=self.plan.local_shape(var),
            dtype=np.dtype(var.aval.dtype if dtype is None else dtype),
            at=at,
            reads=frozenset().union(*(a.reads for a in operands)),
            cost=cost + sum(a.cost for a in operands),
            lanes=self.plan.local_lanes(var),
            steady=steady,
        )

    def stored(
        self,
        memory: Memory,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
    ) -> Array:
        """What stands in memory, as an array."""
        return Array(
            shape=shape,
            dtype=memory.dtype,
            at=lambda index: memory.load(self.b, index),
            memory=memory,
            reads=frozenset([memory]),
            lanes=lanes,
            steady=memory.steady,
        )

    def fresh(self, var: Any) -> Array:
        """Scratch for the value of `var`, to be filled by its rule."""
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        return self.stored(self.scratch(shape, lanes, var.aval.dtype), shape, lanes)

    def put(self, target: Array, source: Array, vector: int | None = -1) -> None:
        """Store every element of `source` into the memory of `target`."""
        assert target.memory is not None
        memory = target.memory
        if memory.group > 1:
            self._put_groups(target, source)
            return
        self.nest(
            target.shape,
            target.lanes,
            lambda index: memory.store(self.b, index, source.at(index)),
            vector,
            source.cost,
        )

    def _put_groups(self, target: Array, source: Array) -> None:
        """Store lanes whose numbers lie side by side, whole groups at a time."""
        memory = target.memory
        assert memory is not None
        inner = [i for i, stride in enumerate(memory.strides) if stride < memory.group]
        numbers = list(product(*(range(target.shape[i]) for i in inner)))
        outer = [1 if i in inner else n for i, n in enumerate(target.shape)]

        def visit(index: tuple[Index, ...]) -> None:
            places = []
            for number in numbers:
                place = list(index)
                for i, k in zip(inner, number, strict=True):
                    place[i] = k
                places.append(tuple(place))
            memory.store_group(self.b, index, [source.at(place) for place in places])

        self.nest(tuple(outer), target.lanes, visit, None, source.cost * len(numbers))

    def keeps(self, body: Any, var: Any, array: Array) -> bool:
        """Whether a value that could be computed where it is pulled is put away."""
        return body.uses[var] > 1 and array.cost > CHEAP

    def materialise(self, array: Array) -> Array:
        """The same values, standing in memory."""
        return array if array.memory is not None else self.copied(array)

    def once(self, array: Array) -> Array:
        """The same values, cheap enough to be pulled many times."""
        return array if array.cost <= CHEAP else self.materialise(array)

    def overwritable(self, eqn: Any, x: Array) -> Array:
        """Memory with the values of `x` that may be written to."""
        return self.body.overwritable(eqn, x)

    def copied(self, array: Array) -> Array:
        """The same values in memory of their own."""
        memory = self.scratch(array.shape, array.lanes, array.dtype)
        copy = self.stored(memory, array.shape, array.lanes)
        self.put(copy, array)
        return copy

    def safe_source(self, source: Array, target: Array) -> Array:
        """The same values, not read from memory that is about to be written."""
        if target.memory is not None and target.memory in source.reads:
            return self.copied(source)
        return source

    def constant_data(self, values: np.ndarray) -> Memory:
        """A constant array, kept beside the code."""
        module = self.function.module
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        kind = ir.ArrayType(ty.I8, raw.size)
        data: Any = ir.GlobalVariable(module, kind, module.get_unique_name("constant"))
        data.initializer = ir.Constant(kind, bytearray(raw.tobytes()))
        data.global_constant = True
        data.linkage = "private"
        data.align = 64
        strides = [1] * values.ndim
        for i in range(values.ndim - 2, -1, -1):
            strides[i] = strides[i + 1] * values.shape[i + 1]
        pointer = _opaque(data)
        return Memory(pointer, values.dtype, tuple(strides), 0, 64)

    # branches

    @contextmanager
    def one_writer(self, lanes: Iterable[Lane | None]) -> Any:
        """Code that only one of the tiles that agree on `lanes` runs."""
        others = [lane for lane in self.plan.lanes if lane not in set(lanes)]
        first = None
        for lane in others:
            if lane.tiles > 1:
                here = self.b.icmp_signed(
                    "==", self.bases[lane], ir.Constant(ty.I64, 0)
                )
                first = here if first is None else self.b.and_(first, here)
        if first is None:
            yield
            return
        with self.b.if_then(first):
            yield


def _opaque(pointer: Any) -> ty.Value:
    """llvmlite types the pointers it makes; LLVM's own have no type."""
    pointer.type = ty.PTR
    return pointer
