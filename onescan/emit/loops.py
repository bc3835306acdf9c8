"""Loops over the elements of values: unrolled where they are few, in vectors.

Small loops are unrolled (their indices are Python ints), and LLVM then keeps scratch
that is only addressed by constants in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import product
from math import inf, prod
from typing import Any, NamedTuple

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Vec, add, scale
from onescan.plan.patience import rounds_between
from onescan.plan.plan import SHORTEST, Lane, Plan

#: the word of the runtime that long kernels look at
STOP = "onescan_stop"

#: from the indices of loops to those of elements
Places = list[Callable[[Any], tuple[Index, ...]]]

#: a nest of loops with at most this many iterations, and about this many operations
#: in all of them, is unrolled
UNROLL = 16
UNROLLED_OPERATIONS = 128
#: operations of a kernel that may be unrolled before loops stay loops
UNROLLED_IN_ALL = 3000
#: operations from which a value is computed for several vectors at once, and for how
#: many of numbers of 4 bytes: one alone would wait for itself
DEAR = 16
SEVERAL = 4


def vectors_at_once(cost: int, bytes_each: int = 4) -> int:
    """How many vectors of numbers are computed together: as many registers of each."""
    return max(1, SEVERAL * 4 // max(4, bytes_each)) if cost >= DEAR else 1


class Stretch(NamedTuple):
    """Some positions, and how many vectors of which width they are."""

    first: int
    vectors: int
    width: int


class Loops:
    """A function under construction, as far as its loops go."""

    unroll, unrolled_operations, unrolled_in_all = (
        UNROLL,
        UNROLLED_OPERATIONS,
        UNROLLED_IN_ALL,
    )
    #: rounds of a nest that is unrolled as a whole, not in its inner dimensions alone
    unroll_whole: float = inf
    #: operations of the steps of an inner loop that are written one after the other
    unrolled_inside = UNROLLED_OPERATIONS
    #: how much longer the code of an operation is than usual
    dear = 1
    #: how often Ctrl-C had been pressed when this call began, where it is looked for
    since: ty.Value = None

    def __init__(self, plan: Plan, function: ir.Function, b: ty.Builder) -> None:
        self.plan, self.function, self.b = plan, function, b
        self.unrolled = 0
        self.b.trips = 1.0
        #: by equation: how many elements of its result are computed
        self.elements: dict[int, float] = {}

    @contextmanager
    def loop(
        self, count: int | ty.Value, about: float | None = None, unroll: bool = False
    ) -> Any:
        """A loop whose index is an i64 from 0 up to `count`, which is not 0.

        `about` is how many rounds to expect, where that is known only at run time.
        LLVM makes all rounds of it one piece of code where it shall `unroll` it.
        """
        rounds = count if isinstance(count, int) else 1.0 if about is None else about
        with self.repeated(rounds), self._loop(count, unroll=unroll) as index:
            yield index

    @contextmanager
    def patient_loop(self, count: int, operations: float) -> Any:
        """A loop of rounds of so many operations, which Ctrl-C ends if it is long."""
        size = rounds_between(count, operations) if self.since is not None else 0
        if not size:
            with self.loop(count) as index:
                yield index
            return
        blocks = -(-count // size)
        with self.repeated(blocks), self._loop(blocks, self.goes_on) as block:
            begin = self.b.mul(block, ir.Constant(ty.I64, size))
            left = self.b.sub(ir.Constant(ty.I64, count), begin)
            whole = ir.Constant(ty.I64, size)
            is_last = self.b.icmp_signed("<", left, whole)
            here = self.b.select(is_last, left, whole)
            with self.loop(here, count / blocks) as index:
                yield self.b.add(begin, index)

    @contextmanager
    def loop_while(
        self, again: Callable[[], ty.Value], most: int, about: float
    ) -> Iterator[None]:
        """A loop that runs once, and on as long as `again` holds after a round.

        It has at most `most` rounds, and is expected to have about `about`.
        """
        with self.repeated(about), self._loop(most, again):
            yield

    def goes_on(self) -> ty.Value:
        """Whether nobody has ended this call by Ctrl-C."""
        stop = self.b.latest(stop_word(self.function.module), ty.I64)
        return self.b.icmp_signed("<=", stop, self.since)

    @contextmanager
    def repeated(self, times: float) -> Iterator[None]:
        """Code that runs so often."""
        before = self.b.trips
        self.b.trips = before * times
        yield
        self.b.trips = before

    def inside(self) -> AbstractContextManager[None]:
        """Code that what comes after it may not have run through."""
        return nullcontext()

    @contextmanager
    def _loop(
        self,
        count: int | ty.Value,
        goes_on: Callable[[], ty.Value] | None = None,
        unroll: bool = False,
    ) -> Any:
        b = self.b
        before = b.block
        head = self.function.append_basic_block("loop")
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(ty.I64)
        index.add_incoming(ir.Constant(ty.I64, 0), before)
        with self.inside():
            yield index
        following = b.add(index, ir.Constant(ty.I64, 1))
        index.add_incoming(following, b.block)
        done = self.function.append_basic_block("done")
        end = ir.Constant(ty.I64, count) if isinstance(count, int) else count
        again = b.icmp_signed("<", following, end)
        if goes_on is not None:
            again = b.and_(again, goes_on())
        branch = b.cbranch(again, head, done)
        if unroll:
            branch.set_metadata("llvm.loop", _unrolled(self.function.module))
        b.position_at_end(done)

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
        if prod(counts) <= min(few, self.unroll_whole):
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
        moves: int = 1,
        several: int | None = None,
    ) -> None:
        """Visit every element of a local shape, a vector at a time.

        The vector lies along the vector lane if there is one, else along
        dimension `vector` (None: no vectors there, -1: that of the plan).  `cost` is
        what an element takes to be computed, `moves` to be read and written.  It is
        done for `several` vectors at once, by default as many as its cost asks for.
        """
        if several is None:
            several = vectors_at_once(cost)
        for counts, places, size in self._segments(shape, lanes, vector, several):

            def visit(index: tuple[Index, ...], places: Places = places) -> None:
                for place in places:
                    body(place(index))

            self.for_each(counts, visit, max(cost, moves) * size)

    def nest_in_order(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Callable[[tuple[Index, ...]], None],
        target: Array,
        vector: int | None = -1,
        cost: int = 1,
        apart: Container[int] = (),
    ) -> None:
        """As `nest`, where two visits may meet in one place of `target`.

        Those that differ along dimensions that are `apart` never do.
        """
        self.nest(shape, lanes, body, vector, cost)

    def nest_in_groups(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        body: Callable[[list[tuple[Index, ...]]], None],
        vector: int | None = -1,
        most: int = 4,
        cost: int = 1,
    ) -> None:
        """As `nest`, with up to `most` neighbours at once, to hide latencies."""
        segments = self._segments(shape, lanes, vector)
        for counts, place in ((c, p) for c, places, _ in segments for p in places):
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
                most * max(cost, 1),
            )
            if whole < last:
                self.for_each(
                    [*outer, 1],
                    lambda index, visit=visit, whole=whole, last=last: visit(
                        index, whole, last - whole
                    ),
                    most * max(cost, 1),
                )

    def _segments(
        self,
        shape: tuple[int, ...],
        lanes: tuple[Lane | None, ...],
        vector: int | None,
        several: int = 1,
    ) -> Iterator[tuple[list[int], Places, int]]:
        """Loop counts, from loop indices to indices, and the vectors of one round.

        There is one of these for each vector width.

        Few numbers side by side, across which vectors lie, are done one after the
        other in one round: memory where they stand so is read and written as a whole.
        """
        if 0 in shape:
            return
        held = next((i for i, l in enumerate(lanes) if l and l.vector), None)
        if held is not None:
            vec = Vec(0, shape[held])
            rest = [*shape[:held], *shape[held + 1 :]]
            yield rest, [lambda index: (*index[:held], vec, *index[held:])], 1
            return
        if not shape or self.plan.inner_width < 2 or vector is None:
            yield list(shape), [lambda index: tuple(index)], 1
            return
        along = self.plan.minor(shape) if vector == -1 else vector
        after = shape[along + 1 :]
        numbers: list[tuple[int, ...]] = [()]
        if after and prod(after) <= self.plan.across:
            numbers, after = list(product(*map(range, after))), ()
            several = max(1, several // len(numbers))
        for start, count, width in self.stretches(shape[along], several):

            def place(
                number: tuple[int, ...],
                index: Any,
                start: int = start,
                width: int = width,
            ) -> tuple[Index, ...]:
                *outer, block = index
                base = add(self.b, scale(self.b, block, width), start)
                part = Vec(base, width) if width > 1 else base  # type: ignore[arg-type]
                return (*outer[:along], part, *outer[along:], *number)

            counts = [*shape[:along], *after, count]
            size = len(numbers) * max(1, width // self.plan.inner_width)
            yield counts, [partial(place, number) for number in numbers], size

    def stretches(self, n: int, several: int = 1) -> list[Stretch]:
        """The vectors that cover n positions, the widest first."""
        width, found = self.plan.inner_width * several if n >= SHORTEST else 1, []
        first = 0
        while first < n:
            if count := (n - first) // width:
                found.append(Stretch(first, count, width))
                first += count * width
            width //= 2
        return found


def stop_word(module: ir.Module) -> ty.Value:
    """The runtime's word for the last Ctrl-C that ended loops."""
    if STOP not in module.globals:
        ir.GlobalVariable(module, ty.I64, STOP)
    return module.globals[STOP]


def _unrolled(module: ir.Module) -> ir.MDValue:
    """What tells LLVM to unroll a loop as a whole: a node that begins with itself."""
    hint = module.add_metadata(["llvm.loop.unroll.full"])
    loop = module.add_metadata([hint])
    loop.operands = (loop, hint)
    return loop
