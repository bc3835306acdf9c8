"""Code that the threads of a block run together on one tile.

Every operation of the body is spread over the threads, element by element.  What it
gives stands in memory that the block shares; a single number each thread computes
for itself.  Between two operations stands a barrier, if the second reads what the
first wrote, or writes what the first read or wrote.  Control flow is the same for
all threads of a block, so all of them meet every barrier.

Where one block cannot hold what a loop needs, several blocks work as one team (a
cluster, in the words of the hardware).  Each of them has all shared memory of the
team in its own: what a thread stores there, it stores in every block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, At, Index, Memory, add, as_value, scale
from onescan.emit.emitter import CHEAP, Emitter
from onescan.emit.mail import Mail
from onescan.emit.watch import Watch, function_of
from onescan.plan.plan import Lane, Plan

WARP = 32
#: elements of one thread that are done without a loop
ROUNDS = 4
#: where arrays begin in the shared memory: what the widest load wants
ALIGNED = 16

#: operations that are done again rather than putting their result away
AGAIN = 30
#: registers of a block, and those of a thread that are left to all but weights
REGISTERS = 65536
OTHERS = 40
#: bytes of shared memory for weights that registers do not hold
KEPT = 160 << 10

_TID = "llvm.nvvm.read.ptx.sreg.tid.x"
_RANK = "llvm.nvvm.read.ptx.sreg.cluster.ctarank"
_SHARED = 3  # LLVM's number of the address space

Visit = Callable[[tuple[Index, ...]], None]


class BlockEmitter(Emitter):
    """One kernel function under construction, run by all threads of a block."""

    b: Watch
    early = True

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        super().__init__(plan, function)
        assert plan.grid is not None
        self.team = plan.grid.team
        self.unit = plan.grid.unit
        self.block = plan.grid.threads  # of one block
        self.threads = self.block * self.team
        self.shared_bytes = 0
        self.registers = min(REGISTERS // self.block, 255) - OTHERS  # for weights
        self.kept_bytes = 0  # of weights, in shared memory
        self.prepare: Any = None  # where code goes that runs before the first step
        self._pulled: dict[Any, ty.Value] | None = None  # in the visit of an element
        self._busy = 0  # threads that the operations before have taken
        self.apart = False  # whether each thread is doing something of its own
        self._private: set[int] = set()
        self._shared: set[int] = set()
        self._home: set[int] = set()  # memory of which each block has its own
        start: Any = self.b.block
        self.b = Watch(start, self._shared, self.team)
        self._anything = False  # whether any memory may have been touched, or just:
        self._read: set[int] = set()
        self._written: set[int] = set()
        module = function.module
        room: Any = ir.GlobalVariable(module, ir.ArrayType(ty.I8, 0), "shared", _SHARED)
        room.align = ALIGNED
        self._room = room
        self.here = self._given(_TID)  # the thread's number in its block
        self.thread = self.here
        if self.team > 1:
            size = ir.Constant(ty.I64, self.block)
            self.rank = self._given(_RANK)
            first = self.entry.mul(self.rank, size)
            self.thread = self.entry.add(first, self.here)
            self.b.distances = self._distances()
            self.meet()  # all blocks are there

    def _distances(self) -> list[ty.Value]:
        """How far each block's memory is from this one's: the same for all of it."""
        b, module = self.entry, self.function.module
        kind = ir.FunctionType(ty.PTR, [ty.PTR, ty.I32])
        of_block = function_of(module, "llvm.nvvm.mapa", kind)
        base = b.addrspacecast(self._room, ty.PTR)
        start = b.ptrtoint(base, ty.I64)
        ranks = (ir.Constant(ty.I32, rank) for rank in range(self.team))
        there = (b.call(of_block, [base, rank]) for rank in ranks)
        return [b.sub(b.ptrtoint(pointer, ty.I64), start) for pointer in there]

    def _given(self, name: str) -> ty.Value:
        """One of the numbers a thread is given by the hardware."""
        function = function_of(self.function.module, name, ir.FunctionType(ty.I32, []))
        return self.entry.zext(self.entry.call(function, []), ty.I64)

    def open_mail(self, memories: list[Memory]) -> None:
        """Let what is stored in these go by mail, in the steps."""
        start = ir.Constant(ty.I64, self.shared_bytes)
        self.shared_bytes += ALIGNED
        boxes: Any = self.entry.gep(self._room, [start], source_etype=ty.I8)
        boxes.type = ir.PointerType(addrspace=_SHARED)
        base: Any = self.entry.gep(
            self._room, [ir.Constant(ty.I64, 0)], source_etype=ty.I8
        )
        base.type = ir.PointerType(addrspace=_SHARED)
        self.b.mail = Mail(self.entry, base, boxes, self.team)
        self.b.letters = {id(memory.pointer) for memory in memories}
        with self.b.if_then(self.below(self.here, 1)):
            self.b.mail.set_up(self.b)

    def expect(self, step: ty.Value, size: int) -> None:
        """The bytes that will come by mail in this step."""
        assert self.b.mail is not None
        with self.b.if_then(self.below(self.here, 1)):
            self.b.mail.expect(self.b, self.b.mail.box(self.b, step), size)

    @contextmanager
    def sending(self, step: ty.Value) -> Iterator[None]:
        """Code whose stores go by mail, if there is mail."""
        if self.b.mail is not None:
            self.b.box = self.b.mail.box(self.b, step)
        yield
        self.b.box = None

    def finish(self) -> None:
        """No block ends while another may still write to it."""
        if self.team > 1:
            self.meet()

    # meeting

    @contextmanager
    def phase(self) -> Iterator[None]:
        """Code in which each thread goes its own way, after a barrier if need be."""
        if self.apart:
            yield
            return
        before = self.b.block
        here = self.function.append_basic_block("phase")
        end = self.b.branch(here)
        self.b.position_at_end(here)
        reads, writes = self.b.reads, self.b.writes
        self.b.reads, self.b.writes = set(), set()
        with self.by_itself():
            yield
        seen, changed = self.b.reads, self.b.writes
        met = (seen & self._written) | (changed & (self._read | self._written))
        if met or self._anything:
            place = ir.IRBuilder(before)
            place.position_before(end)
            self._settle(place, at_home=not self._anything and met <= self._home)
        self._read |= seen
        self._written |= changed
        self.b.reads, self.b.writes = reads | seen, writes | changed

    def sync(self) -> None:
        """Every thread has done what comes before."""
        if not self.apart and (self._anything or self._written):
            self._settle(self.b)
        # what is read next was not in a phase
        self._anything = True

    def meet(self) -> None:
        """A barrier for everyone: nothing is being read or written."""
        self._settle(self.b)

    def meet_at_end(self, step: ty.Value) -> None:
        """The end of a step: everything that was sent in it is here."""
        strangers = (self._written - self._home) | (self._read & self._shared)
        if self.b.mail is None or strangers or self._anything:
            self.meet()
        else:
            self._barrier(self.b, self.block, 1)
            self._read, self._written = set(), set()
        if self.b.mail is not None:
            self.b.mail.wait(self.b, self.b.mail.box(self.b, step), step)

    def _settle(self, b: ty.Builder, at_home: bool = False) -> None:
        """A barrier; one block alone suffices for what blocks have of their own."""
        if at_home:
            self._barrier(b, self.block, 1)
            self._read -= self._home
            self._written -= self._home
            return
        self._barrier(b, self.block, self.team)
        self._anything, self._read, self._written = False, set(), set()

    def _barrier(self, b: ty.Builder, threads: int, team: int) -> None:
        module = self.function.module
        nothing = ir.FunctionType(ir.VoidType(), [])
        if team > 1:
            for name in ("arrive", "wait"):
                full = f"llvm.nvvm.barrier.cluster.{name}.aligned"
                b.call(function_of(module, full, nothing), [])
        elif threads == WARP:
            kind = ir.FunctionType(ir.VoidType(), [ty.I32])
            meet = function_of(module, "llvm.nvvm.bar.warp.sync", kind)
            b.call(meet, [ir.Constant(ty.I32, -1)])
        else:
            b.call(function_of(module, "llvm.nvvm.barrier0", nothing), [])

    def begin_at(self, block: ir.Block) -> None:
        super().begin_at(block)
        self._anything = True

    @contextmanager
    def loop(self, count: int, unroll: int = 0) -> Any:
        self._anything |= not self.apart  # the round before
        pulled = self._pulled
        with super().loop(count, unroll) as index:
            # what is computed in a round cannot be used after it
            self._pulled = None if pulled is None else dict(pulled)
            yield index
        self._pulled = pulled
        self._anything |= not self.apart

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
        with self.phase():
            if total == 1:
                self._visit(body, (0,) * len(shape))
            else:
                self.spread_shape(shape, lambda index: self._visit(body, index))

    def _visit(self, body: Visit, index: tuple[Index, ...]) -> None:
        """Visit an element; what is pulled several times is computed once."""
        outer, self._pulled = self._pulled, {}
        body(index)
        self._pulled = outer

    def lazy(self, var: Any, at: At, *args: Any, **options: Any) -> Array:
        array = super().lazy(var, at, *args, **options)

        def once(index: tuple[Index, ...]) -> ty.Value:
            if self._pulled is None:
                return at(index)
            key = (id(at), *map(same, index))
            if key not in self._pulled:
                self._pulled[key] = at(index)
            return self._pulled[key]

        return replace(array, at=once)

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
        with self.phase(), self.first_thread():
            visit((0,) * len(shape))

    def spread_shape(self, shape: tuple[int, ...], body: Visit) -> None:
        """Run `body` for each index below `shape`, each by one thread."""
        if not self.is_shared_out(shape):
            self.spread(
                prod(shape), lambda flat: body(unflattened(self.b, flat, shape))
            )
            return
        mine = self.share(shape)
        self.spread(
            prod(mine),
            lambda flat: body(self.in_team(unflattened(self.b, flat, mine))),
            alone=True,
        )

    def is_shared_out(self, shape: tuple[int, ...]) -> bool:
        """Whether each block of the team has a share of such a value."""
        return bool(self.unit and shape and shape[-1] % self.unit == 0)

    def share(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a block's share."""
        return (*shape[:-1], shape[-1] // self.team)

    def in_team(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        """The index in the whole value of an element of this block's share."""
        return (*index[:-1], self.position(index[-1]))

    def position(self, mine: Index) -> Index:
        """The position along the shared axis of one of this block's positions."""
        b, each = self.b, self.unit // self.team
        size = ir.Constant(ty.I64, each)
        number = as_value(b, mine)
        whole, rest = b.udiv(number, size), b.urem(number, size)
        first = b.add(b.mul(self.rank, size), rest)
        return b.add(b.mul(whole, ir.Constant(ty.I64, self.unit)), first)

    def spread(
        self, total: int, body: Callable[[Index], None], alone: bool = False
    ) -> None:
        """Run `body` for each number below `total`, each by one thread.

        A block that is `alone` does all of them itself.
        """
        thread, threads = self.thread, self.threads
        if alone:
            thread, threads = self.here, self.block
        rounds, left = divmod(total, threads)
        if rounds > ROUNDS:
            with self.loop(rounds) as k:
                first = self.b.mul(k, ir.Constant(ty.I64, threads))
                body(self.b.add(first, thread))
        else:
            for k in range(rounds):
                body(add(self.b, thread, k * threads))
        if left:
            if not rounds:
                thread = self._others(total, thread, threads)
            with self.b.if_then(self.below(thread, left)):
                body(add(self.b, thread, rounds * threads))

    def _others(self, count: int, thread: ty.Value, threads: int) -> ty.Value:
        """Numbers for threads, of which the first `count` are in warps of their own.

        Two small operations that need no barrier between them then go on side by side.
        """
        warps = -(-count // WARP) * WARP
        first = self._busy if self._busy + warps <= threads else 0
        self._busy = first + warps
        return self.b.sub(thread, ir.Constant(ty.I64, first))

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
        """Where several operations pull a value, and it takes long to compute."""
        if array.cost <= CHEAP or body.uses[var] < 2:
            return False
        return (len(body.sinks(var)) - 1) * array.cost > AGAIN

    def reserve(self, size: int) -> ty.Value:
        """That many bytes of the shared memory."""
        start = ir.Constant(ty.I64, self.shared_bytes)
        self.shared_bytes += -(-size // ALIGNED) * ALIGNED
        place: Any = self.entry.gep(self._room, [start], source_etype=ty.I8)
        place.type = ir.PointerType(addrspace=_SHARED)
        pointer = self.entry.addrspacecast(place, ty.PTR)
        self._shared.add(id(pointer))
        return pointer

    def at_home(self, memory: Memory) -> Memory:
        """Memory that is not the same in every block of the team."""
        self._shared.discard(id(memory.pointer))
        self._home.add(id(memory.pointer))
        return memory

    def unwatched(self, pointer: ty.Value) -> None:
        """Memory that needs no barriers but the one at the end of each step."""
        self.b.ignored.add(id(pointer))

    @contextmanager
    def over_time(self, length: int) -> Any:
        """The loop over the steps; all threads must meet at the end of each."""
        self.meet()
        with super().loop(length) as step:
            yield step
            if self._anything or self._read or self._written:
                self.meet()
        self._anything = True

    def own_room(self, numbers: int, dtype: Any) -> Memory:
        """Shared memory in which each thread has some numbers of its own."""
        dtype = np.dtype(dtype)
        pointer = self.reserve(self.block * numbers * dtype.itemsize)
        return Memory(pointer, dtype, (numbers, 1), 0, ALIGNED)

    def is_private(self, memory: Memory | None) -> bool:
        """Whether each thread has its own copy of this memory."""
        return memory is not None and id(memory.pointer) in self._private

    def put(self, target: Array, source: Array, vector: int | None = -1) -> None:
        alone = prod(target.shape) == 1 and not self.is_private(target.memory)
        if not alone or self.apart:
            super().put(target, source, vector)
            return
        memory: Any = target.memory
        index = (0,) * len(target.shape)
        with self.phase(), self.first_thread():
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
        with self.phase(), self.first_thread():
            self._visit(visit, (0,) * len(shape))

    # before the first step

    def fits(self, numbers: int) -> bool:
        """Whether each thread can keep that many more weights."""
        over = max(0, numbers - max(self.registers, 0))
        return self.kept_bytes + 4 * over * self.block <= KEPT

    def in_registers(self, numbers: int) -> int:
        """How many of that many more weights a thread keeps in registers."""
        here = min(numbers, max(self.registers, 0))
        self.registers -= here
        self.kept_bytes += 4 * (numbers - here) * self.block
        return here

    @contextmanager
    def beforehand(self) -> Iterator[None]:
        """Code that runs once, before the first step."""
        after: Any = self.b
        self.b = self.prepare
        yield
        self.b = after


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


def same(i: Index) -> Any:
    """What two indices have in common if they are the same."""
    return i if isinstance(i, int) else id(i)


def flattened(b: ty.Builder, index: tuple[Index, ...], shape: Iterable[int]) -> Index:
    """The number of an element in row-major order."""
    flat: Index = 0
    for i, n in zip(index, shape, strict=True):
        flat = add(b, scale(b, flat, n), i)
    return flat
