"""Code that the threads of a block run together on one tile.

Every operation of the body is spread over the threads, element by element.  What it
gives stands in memory that the block shares, and a barrier stands between two
operations; a single number each thread computes for itself.  Control flow is the
same for all threads of a block, so all of them meet every barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, add, scale
from onescan.emit.emitter import CHEAP, Emitter
from onescan.plan.plan import Lane, Plan

WARP = 32
#: elements of one thread that are done without a loop
ROUNDS = 4
#: where arrays begin in the shared memory: what the widest load wants
ALIGNED = 16

#: operations that are done again rather than putting their result away
AGAIN = 300
#: registers of a block, and those of a thread that are left to all but weights
REGISTERS = 65536
OTHERS = 40
#: bytes of shared memory for weights that registers do not hold
KEPT = 160 << 10

_TID = "llvm.nvvm.read.ptx.sreg.tid.x"
_SHARED = 3  # LLVM's number of the address space

Visit = Callable[[tuple[Index, ...]], None]


class BlockEmitter(Emitter):
    """One kernel function under construction, run by all threads of a block."""

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        super().__init__(plan, function)
        assert plan.grid is not None
        self.threads = plan.grid.threads
        self.shared_bytes = 0
        self.registers = min(REGISTERS // self.threads, 255) - OTHERS  # for weights
        self.kept_bytes = 0  # of weights, in shared memory
        self.prepare: Any = None  # where code goes that runs before the first step
        self.apart = False  # whether each thread is doing something of its own
        self.unsettled = False  # whether threads may still read or write shared memory
        module = function.module
        room: Any = ir.GlobalVariable(module, ir.ArrayType(ty.I8, 0), "shared", _SHARED)
        room.align = ALIGNED
        self._room = room
        self._private: set[int] = set()
        tid = function_of(module, _TID, ir.FunctionType(ty.I32, []))
        self.thread = self.entry.zext(self.entry.call(tid, []), ty.I64)

    # meeting

    def sync(self) -> None:
        """Every thread has done what comes before."""
        if self.unsettled and not self.apart:
            self.barrier()
        self.unsettled = True

    def barrier(self) -> None:
        module = self.function.module
        if self.threads == WARP:
            kind = ir.FunctionType(ir.VoidType(), [ty.I32])
            meet = function_of(module, "llvm.nvvm.bar.warp.sync", kind)
            self.b.call(meet, [ir.Constant(ty.I32, -1)])
        else:
            kind = ir.FunctionType(ir.VoidType(), [])
            meet = function_of(module, "llvm.nvvm.barrier0", kind)
            self.b.call(meet, [])
        self.unsettled = False

    @contextmanager
    def loop(self, count: int, unroll: int = 0) -> Any:
        self.unsettled = True  # from the round before
        with super().loop(count, unroll) as index:
            yield index
        self.unsettled = True

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """No barriers inside, and nothing is spread."""
        outer, self.apart = self.apart, True
        yield
        self.apart = outer

    # spreading

    def nest(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Visit,
        vector: int | None = -1,
        cost: int = 1,
    ) -> None:
        if self.apart:
            super().nest(shape, lanes, body, vector, cost)
            return
        total = prod(shape)
        if not total:
            return
        self.sync()
        with self.by_itself():
            if total == 1:
                body((0,) * len(shape))
            else:
                self.spread(total, lambda flat: body(unflattened(self.b, flat, shape)))

    def nest_in_groups(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Callable[[list[tuple[Index, ...]]], None],
        vector: int | None = -1,
        most: int = 4,
    ) -> None:
        self.nest(shape, lanes, lambda index: body([index]), vector)

    def nest_in_order(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Visit,
        target: Array,
        vector: int | None = -1,
    ) -> None:
        """Only lanes go side by side: what else meets in one place comes in order."""
        outer = tuple(n if lane else 1 for n, lane in zip(shape, lanes, strict=True))
        inner = tuple(1 if lane else n for n, lane in zip(shape, lanes, strict=True))

        def visit(lane: tuple[Index, ...]) -> None:
            self.for_each(
                inner,
                lambda index: body(
                    tuple(add(self.b, i, k) for i, k in zip(lane, index, strict=True))
                ),
            )

        if self.apart or prod(outer) > 1 or self.is_private(target.memory):
            self.nest(outer, lanes, visit)
            return
        self.sync()
        with self.by_itself(), self.first_thread():
            visit((0,) * len(shape))

    def spread(self, total: int, body: Callable[[Index], None]) -> None:
        """Run `body` for each number below `total`, each by one thread."""
        rounds, left = divmod(total, self.threads)
        if rounds > ROUNDS:
            with self.loop(rounds) as k:
                first = self.b.mul(k, ir.Constant(ty.I64, self.threads))
                body(self.b.add(first, self.thread))
        else:
            for k in range(rounds):
                body(add(self.b, self.thread, k * self.threads))
        if left:
            with self.b.if_then(self.below(self.thread, left)):
                body(add(self.b, self.thread, rounds * self.threads))

    def below(self, value: ty.Value, limit: int) -> ty.Value:
        return self.b.icmp_unsigned("<", value, ir.Constant(ty.I64, limit))

    @contextmanager
    def first_thread(self) -> Iterator[None]:
        with self.b.if_then(self.below(self.thread, 1)):
            yield

    # memory

    def scratch(
        self, shape: tuple[int, ...], lanes: tuple[Lane | None, ...], dtype: Any
    ) -> Memory:
        """Memory of the block; a single number each thread keeps for itself."""
        size = prod(shape)
        if size <= 1 or self.apart:
            memory = super().scratch(shape, lanes, dtype)
            self._private.add(id(memory.pointer))
            return memory
        dtype = np.dtype(dtype)
        strides, step = [0] * len(shape), 1
        for i in reversed(range(len(shape))):
            strides[i] = step
            step *= shape[i]
        pointer = self.reserve(size * dtype.itemsize)
        return Memory(pointer, dtype, tuple(strides), 0, ALIGNED)

    def keeps(self, body: Any, var: Any, array: Array) -> bool:
        """A barrier costs more than to compute a number twice."""
        if array.cost <= CHEAP or body.uses[var] < 2:
            return False
        return not body.pulled_anew(var) or body.uses[var] * array.cost > AGAIN

    def reserve(self, size: int) -> ty.Value:
        """That many bytes of the shared memory."""
        start = ir.Constant(ty.I64, self.shared_bytes)
        self.shared_bytes += -(-size // ALIGNED) * ALIGNED
        place: Any = self.entry.gep(self._room, [start], source_etype=ty.I8)
        place.type = ir.PointerType(addrspace=_SHARED)
        return self.entry.addrspacecast(place, ty.PTR)

    def is_private(self, memory: Memory | None) -> bool:
        """Whether each thread has its own copy of this memory."""
        return memory is not None and id(memory.pointer) in self._private

    def put(self, target: Array, source: Array, vector: int | None = -1) -> None:
        alone = prod(target.shape) == 1 and not self.is_private(target.memory)
        if not alone or self.apart:
            super().put(target, source, vector)
            return
        self.sync()
        memory: Any = target.memory
        index = (0,) * len(target.shape)
        with self.by_itself(), self.first_thread():
            memory.store(self.b, index, source.at(index))

    def put_all(self, pairs: list[tuple[Array, Array]]) -> None:
        """Store values of one shape, each element of all of them by one thread.

        No target is read by any of the values.
        """
        shape = pairs[0][0].shape

        def visit(index: tuple[Index, ...]) -> None:
            values = {id(source): source.at(index) for _, source in pairs}
            for target, source in pairs:
                memory: Any = target.memory
                memory.store(self.b, index, values[id(source)])

        if prod(shape) > 1:
            self.nest(shape, pairs[0][0].lanes, visit)
            return
        self.sync()
        with self.by_itself(), self.first_thread():
            visit((0,) * len(shape))

    # before the first step

    def fits(self, numbers: int) -> bool:
        """Whether each thread can keep that many more weights."""
        over = max(0, numbers - max(self.registers, 0))
        return self.kept_bytes + 4 * over * self.threads <= KEPT

    def in_registers(self, numbers: int) -> int:
        """How many of that many more weights a thread keeps in registers."""
        here = min(numbers, max(self.registers, 0))
        self.registers -= here
        self.kept_bytes += 4 * (numbers - here) * self.threads
        return here

    @contextmanager
    def beforehand(self) -> Iterator[None]:
        """Code that runs once, before the first step."""
        after, self.b = self.b, self.prepare
        yield
        self.b = after


def function_of(module: ir.Module, name: str, kind: ir.FunctionType) -> ty.Value:
    """A function that the hardware or LLVM provides."""
    return module.globals.get(name) or ir.Function(module, kind, name)


def unflattened(b: ty.Builder, flat: Index, shape: Iterable[int]) -> tuple[Index, ...]:
    """The index of an element, from its number in row-major order."""
    shape = tuple(shape)
    if isinstance(flat, int):
        return tuple(int(i) for i in np.unravel_index(flat, shape))
    if sum(n > 1 for n in shape) <= 1:
        return tuple(0 if n == 1 else flat for n in shape)
    index: list[Index] = []
    # 32 bits divide faster, and no tile has that many elements
    rest = b.trunc(flat, ty.I32)
    first = next(i for i, n in enumerate(shape) if n > 1)
    for i in reversed(range(len(shape))):
        n = shape[i]
        if n == 1:
            index.append(0)
        elif i == first:
            index.append(b.zext(rest, ty.I64))
        else:
            size = ir.Constant(ty.I32, n)
            index.append(b.zext(b.urem(rest, size), ty.I64))
            rest = b.udiv(rest, size)
    return tuple(reversed(index))


def flattened(b: ty.Builder, index: tuple[Index, ...], shape: Iterable[int]) -> Index:
    """The number of an element in row-major order."""
    flat: Index = 0
    for i, n in zip(index, shape, strict=True):
        flat = add(b, scale(b, flat, n), i)
    return flat
