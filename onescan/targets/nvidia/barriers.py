"""How the threads of a block, and the blocks of a team, wait for each other.

Between two operations stands a barrier, if the second reads what the first wrote, or
writes what the first read or wrote.  Control flow is the same for all threads of a
block, so all of them meet every barrier.  Operations of one warp that need only each
other wait for that warp alone (`warps`).

Where one block cannot hold what a loop needs, several blocks work as one team (a
cluster, in the words of the hardware).  Each of them has all shared memory of the
team in its own: what a thread stores there, it stores in every block.

Blocks may also have a part each of an axis along which only sums meet.  Then each works
by itself, with its own memory, and they meet where they add up (`all_reduce`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Memory
from onescan.emit.math.nvvm import RANK, TID, function_of, given
from onescan.plan.plan import Plan
from onescan.targets.nvidia.accesses import AccessBuilder
from onescan.targets.nvidia.emitter import GpuEmitter
from onescan.targets.nvidia.mbarriers import Mbarriers
from onescan.targets.nvidia.warps import WARP, Warps

#: where arrays begin in the shared memory: what the widest load wants
ALIGNED = 16

_SHARED = 3  # LLVM's number of the address space


class Barriers(GpuEmitter):
    """An emitter of code that several threads run, and the places where they meet."""

    b: AccessBuilder
    renews_in_place = False  # other threads may still read the old value

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        super().__init__(plan, function)
        assert plan.grid is not None
        self.parallel = plan.parallel is not None
        self.blocks = plan.grid.team  # launched as one cluster
        self.team = 1 if self.parallel else self.blocks  # that share all work
        self.block = plan.grid.threads  # of one block
        self.threads = self.block * self.team
        self.shared_bytes = 0
        self.apart = False  # whether each thread is doing something of its own
        self._shared: set[int] = set()
        self._home: set[int] = set()  # memory of which each block has its own
        self._afar: set[int] = set()  # memory that blocks use to add up
        start: Any = self.b.block
        self.b = AccessBuilder(start, self._shared, self.team)
        self.b.longest = plan.longest
        self._anything = False  # whether any memory may have been touched, or just:
        self._read: set[int] = set()
        self._written: set[int] = set()
        self._seats = Warps()
        module = function.module
        room: Any = ir.GlobalVariable(module, ir.ArrayType(ty.I8, 0), "shared", _SHARED)
        room.align = ALIGNED
        self.base = room
        self.here = self._given(TID)  # the thread's number in its block
        self.thread = self.here
        if self.blocks > 1:
            self.rank = self._given(RANK)
            self.b.distances = self._distances()
            self._barrier(self.b, self.block, self.blocks)  # all blocks are there
        if self.team > 1:
            size = ir.Constant(ty.I64, self.block)
            first = self.entry.mul(self.rank, size)
            self.thread = self.entry.add(first, self.here)

    def _given(self, name: str) -> ty.Value:
        return self.entry.zext(given(self.entry, name), ty.I64)

    def _distances(self) -> list[ty.Value]:
        """How far each block's memory is from this one's: the same for all of it."""
        ranks = (ir.Constant(ty.I64, rank) for rank in range(self.blocks))
        return [self.distance(self.entry, rank) for rank in ranks]

    def distance(self, b: ty.Builder, rank: ty.Value) -> ty.Value:
        """How far the memory of the block of this rank is from this one's."""
        kind = ir.FunctionType(ty.PTR, [ty.PTR, ty.I32])
        of_block = function_of(self.function.module, "llvm.nvvm.mapa", kind)
        base = b.addrspacecast(self.base, ty.PTR)
        there = b.call(of_block, [base, b.trunc(rank, ty.I32)])
        return b.sub(b.ptrtoint(there, ty.I64), b.ptrtoint(base, ty.I64))

    def below(self, value: ty.Value, limit: int) -> ty.Value:
        return self.b.icmp_unsigned("<", value, ir.Constant(ty.I64, limit))

    # shared memory

    def _place(self, start: int) -> ty.Value:
        """A pointer into the shared memory of this block."""
        begin = ir.Constant(ty.I64, start)
        place: Any = self.entry.gep(self.base, [begin], source_etype=ty.I8)
        place.type = ir.PointerType(addrspace=_SHARED)
        return place

    def reserve(self, size: int) -> ty.Value:
        """That many bytes of the shared memory."""
        place = self._place(self.shared_bytes)
        self.shared_bytes += -(-size // ALIGNED) * ALIGNED
        pointer = self.entry.addrspacecast(place, ty.PTR)
        (self._home if self.parallel else self._shared).add(id(pointer))
        return pointer

    def at_home(self, memory: Memory) -> Memory:
        """Memory that is not the same in every block of the team."""
        self._shared.discard(id(memory.pointer))
        self._home.add(id(memory.pointer))
        return memory

    def from_afar(self, memory: Memory) -> Memory:
        """Memory that other blocks read or write, while they add up."""
        self._home.discard(id(memory.pointer))
        self._afar.add(id(memory.pointer))
        return memory

    # mail

    def open_mail(self, memories: list[Memory]) -> Mbarriers:
        """Let what is stored in these go by mail, in the steps."""
        boxes = self._place(self.shared_bytes)
        self.shared_bytes += ALIGNED
        mail = Mbarriers(self.entry, self._place(0), boxes, self.team)
        self.b.letters.update((id(memory.pointer), mail) for memory in memories)
        with self.b.if_then(self.below(self.here, 1)):
            mail.set_up(self.b)
        return mail

    def expect(self, mail: Mbarriers, step: ty.Value, size: int) -> None:
        """The bytes that will come by mail in this step."""
        with self.b.if_then(self.below(self.here, 1)):
            mail.expect(self.b, mail.box(self.b, step), size)

    def wait(self, mail: Mbarriers, step: ty.Value) -> None:
        """Everything that was sent in this step is here."""
        mail.wait(self.b, mail.box(self.b, step), step)

    @contextmanager
    def sending(self, step: ty.Value) -> Iterator[None]:
        """Code whose stores go by mail, if there is mail for them."""
        self.b.step = step
        yield
        self.b.step = None

    def finish(self) -> None:
        """No block ends while another may still write to it."""
        if self.blocks > 1:
            self._barrier(self.b, self.block, self.blocks)

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
        self._seats.begin()
        with self._watched() as (seen, changed), self.by_itself():
            yield
        met = (seen & self._written) | (changed & (self._read | self._written))
        warp = self._warp_of(met, seen | changed)
        if met or self._anything:
            place = ir.IRBuilder(before)
            place.position_before(end)
            if warp is None:
                self._settle(place, self._is_at_home(met))
            else:
                self._barrier(place, WARP, 1)
        self._seats.end(seen | changed, warp)
        self._read |= seen
        self._written |= changed

    def _warp_of(self, met: set[int], touched: set[int]) -> int | None:
        """The one warp that a phase has to wait for, if it can be a part of it."""
        others = self.team > 1 or not met.isdisjoint(self._afar)
        if self._anything or others or not self._seats.is_one_warp(touched):
            return None
        return self._seats.warp_of(met)

    def _is_at_home(self, met: set[int]) -> bool:
        """Whether a block need not wait for others."""
        if self.parallel:  # they meet nowhere but in sums of the body itself
            return met.isdisjoint(self._afar)
        return not self._anything and met <= self._home

    @contextmanager
    def _watched(self) -> Iterator[tuple[set[int], set[int]]]:
        """The memory that this code reads, and that it writes."""
        reads, writes = self.b.reads, self.b.writes
        seen, changed = self.b.reads, self.b.writes = set(), set()
        yield seen, changed
        reads |= seen
        writes |= changed
        self.b.reads, self.b.writes = reads, writes

    @contextmanager
    def few(self, count: int, thread: ty.Value, threads: int) -> Iterator[ty.Value]:
        """Code of `count` of the threads; each of them has a number from 0 on."""
        touched: set[int] = set()
        number = self.b.sub(thread, self._seats.take(count, threads, touched))
        with self._watched() as (seen, changed):
            with self.b.if_then(self.below(number, count)):
                yield number
            touched.update(seen, changed)

    def sync(self) -> None:
        """Every thread has done what comes before."""
        if not self.apart and (self._anything or self._written):
            self._settle(self.b, self.parallel and self._is_at_home(self._written))
        # what is read next was not in a phase
        self._anything = True

    def before_a_branch(self) -> None:
        """Meet here for all that was touched.

        A barrier inside the branch would be one of those tiles alone that take it.
        """
        if not self.apart and (self._anything or self._read or self._written):
            self.meet()

    def meet(self) -> None:
        """A barrier for everyone: nothing is being read or written."""
        self._settle(self.b, self.parallel and self._is_at_home(self._written))

    def meet_at_end(self, by_mail: bool) -> None:
        """The end of a step: each block by itself, where a team shares only mail."""
        self._read -= self._afar  # `all_reduce` says why
        self._written -= self._afar
        strangers = (self._written - self._home) | (self._read & self._shared)
        if not by_mail or strangers or self._anything:
            self.meet()
        else:
            self._barrier(self.b, self.block, 1)
            self._read, self._written = set(), set()
            self._seats.met()

    def _settle(self, b: ty.Builder, at_home: bool = False) -> None:
        """A barrier; one block alone suffices for what blocks have of their own."""
        if at_home:
            self._barrier(b, self.block, 1)
            if self.parallel:
                self._anything = False
                self._read &= self._afar
                self._written &= self._afar
                self._seats.met()
                return
            self._read -= self._home
            self._written -= self._home
            return
        self._barrier(b, self.block, self.blocks)
        self._anything, self._read, self._written = False, set(), set()
        self._seats.met()

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

    def _before_rounds(self) -> None:
        """No block waits for others in rounds, of which it may have more than they."""
        if not self.apart and not self._written.isdisjoint(self._afar):
            self.meet()
        self._anything |= not self.apart  # the round before

    @contextmanager
    def loop(
        self, count: int | ty.Value, about: float | None = None, unroll: bool = False
    ) -> Any:
        self._before_rounds()
        with super().loop(count, about, unroll) as index:
            yield index
        self._anything |= not self.apart

    @contextmanager
    def loop_while(
        self, again: Callable[[], ty.Value], most: int, about: float
    ) -> Iterator[None]:
        """What `again` gives must be the same for all threads."""
        self._before_rounds()
        with super().loop_while(again, most, about):
            yield
        self._anything |= not self.apart

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """No barriers inside, and nothing is spread."""
        outer, self.apart = self.apart, True
        yield
        self.apart = outer

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
