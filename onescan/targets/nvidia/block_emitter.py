"""Code that the threads of a block run together on one tile.

Every operation of the body is spread over the threads, element by element.  What it
gives stands in memory that the block shares; a single number each thread computes
for itself.  `Barriers` puts barriers between the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, At, Index, Memory, add, as_value
from onescan.emit.emitter import CHEAP
from onescan.loop import Atom
from onescan.plan.plan import Lane, Plan
from onescan.targets.nvidia.barriers import ALIGNED, Barriers
from onescan.targets.nvidia.flat_index import same, unflattened
from onescan.targets.nvidia.mbarriers import Mbarriers
from onescan.targets.nvidia.shares import stays_home

#: elements of one thread that are done without a loop
ROUNDS = 4
#: operations that are done again rather than putting their result away
AGAIN = 30
#: registers of a block, and those of a thread that are left to all but weights: with
#: fewer, an LSTM's step keeps some of its values in slow memory and takes half as long
#: again
REGISTERS = 65536
OTHERS = 56
#: bytes of shared memory for weights that registers do not hold
KEPT = 160 << 10

Visit = Callable[[tuple[Index, ...]], None]


class BlockEmitter(Barriers):
    """One kernel function under construction, run by all threads of a block."""

    early = True
    unrolled_operations = 160
    unrolled_inside = 4096

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        super().__init__(plan, function)
        assert plan.grid is not None
        self.unit = plan.grid.unit
        self.registers = min(REGISTERS // self.block, 255) - OTHERS  # for weights
        self.kept_bytes = 0  # of weights, in shared memory
        self.prepare: Any = None  # where code goes that runs before the first step
        self._pulled: dict[Any, ty.Value] | None = None  # in the visit of an element
        self._private: set[int] = set()
        self.now: ty.Value = None  # the step
        self.mailed: dict[Any, tuple[Mbarriers, Memory]] = {}  # values that go by mail
        self.unsettled: dict[Memory, Callable[[], None]] = {}  # sums of several blocks

    @contextmanager
    def loop(
        self, count: int | ty.Value, about: float | None = None, unroll: bool = False
    ) -> Any:
        pulled = self._pulled
        with super().loop(count, about, unroll) as index:
            # what is computed in a round cannot be used after it
            self._pulled = None if pulled is None else dict(pulled)
            yield index
        self._pulled = pulled

    # spreading

    def nest(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Visit,
        vector: int | None = -1,
        cost: int = 1,
        moves: int = 1,
        several: int | None = None,
    ) -> None:
        if self.apart:
            super().nest(shape, lanes, body, vector, cost, moves, several)
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

    def lazy(self, var: Atom, at: At, *args: Any, **options: Any) -> Array:
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
        cost: int = 1,
    ) -> None:
        self.nest(shape, lanes, lambda index: body([index]), vector)

    def nest_in_order(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Visit,
        target: Array,
        vector: int | None = -1,
        cost: int = 1,
        apart: Container[int] = (),
    ) -> None:
        """Side by side goes what never meets, lanes and what else is `apart`.

        What may meet in one place comes in order.
        """
        free = [lane is not None or i in apart for i, lane in enumerate(lanes)]
        outer = tuple(n if f else 1 for n, f in zip(shape, free, strict=True))
        inner = tuple(1 if f else n for n, f in zip(shape, free, strict=True))

        def visit(lane: tuple[Index, ...]) -> None:
            self.for_each(
                inner,
                lambda index: body(
                    tuple(add(self.b, i, k) for i, k in zip(lane, index, strict=True))
                ),
                cost,
            )

        if 0 in shape:
            return
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
        if left and rounds:
            with self.b.if_then(self.below(thread, left)):
                body(add(self.b, thread, rounds * threads))
        elif left:
            with self.few(left, thread, threads) as number:
                body(number)

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

    def keeps(self, body: Any, var: Atom, array: Array) -> bool:
        """Where several operations pull a value, and it takes long to compute."""
        if array.cost <= CHEAP or body.uses[var] < 2:
            return False
        return (len(body.sinks(var)) - 1) * array.cost > AGAIN

    def own_room(self, numbers: int, dtype: Any) -> Memory:
        """Shared memory in which each thread has some numbers of its own."""
        dtype = np.dtype(dtype)
        pointer = self.reserve(self.block * numbers * dtype.itemsize)
        return Memory(pointer, dtype, (numbers, 1), 0, ALIGNED)

    def is_private(self, memory: Memory | None) -> bool:
        """Whether each thread has its own copy of this memory."""
        return memory is not None and id(memory.pointer) in self._private

    def put(self, target: Array, source: Array, vector: int | None = -1) -> None:
        self.reading([source])
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
        self.reading([source for _, source in pairs])
        if 0 in shape:
            return

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

    # by mail

    def mail_out(self, var: Atom) -> None:
        """Let a value of the body go by mail; it has two places, for turns."""
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        memory = self.scratch((2, *shape), (None, *lanes), var.aval.dtype)
        self.unwatched(memory.pointer)
        self.mailed[var] = self.open_mail([memory]), memory

    @contextmanager
    def filling(self, var: Atom) -> Iterator[Array]:
        """Where the value of `var` goes, element by element, each just once."""
        if var not in self.mailed:
            target = self.fresh(var)
            if self.team > 1 and stays_home(self.body.jaxpr, var, self.unit):
                memory: Any = target.memory
                self.at_home(memory)
            yield target
            return
        mail, memory = self.mailed[var]
        here = memory.within(self.b, self.b.and_(self.now, ir.Constant(ty.I64, 1)))
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        self.expect(mail, self.now, prod(shape) * here.dtype.itemsize)
        with self.sending(self.now):
            yield self.stored(here, shape, lanes)
        self.wait(mail, self.now)

    # sums of several blocks

    def belong_to_several(self, var: Atom, dims: Iterable[int]) -> bool:
        """Whether the positions along some dimensions belong to several blocks."""
        lanes = self.plan.local_lanes(var)
        return self.parallel and any(lanes[i] is self.plan.parallel for i in dims)

    def settle_later(self, memory: Memory, settle: Callable[[], None]) -> None:
        """Let code that fills memory wait until somebody reads it."""
        self.unsettled[memory] = settle

    def reading(self, arrays: Iterable[Array]) -> None:
        """If any of these waits for other blocks, do so now, for all that does."""
        if any(self.unsettled.keys() & array.reads for array in arrays):
            waiting, self.unsettled = self.unsettled, {}
            for settle in waiting.values():
                settle()

    def room(self, numbers: int, dtype: Any) -> Memory:
        """Memory of the block for so many numbers."""
        dtype = np.dtype(dtype)
        pointer = self.reserve(numbers * dtype.itemsize)
        return Memory(pointer, dtype, (1,), 0, ALIGNED)

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
