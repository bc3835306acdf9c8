"""The emitter: where the next instruction goes, scratch memory, materialising.

Rules build `Array`s and ask the emitter for loops (`loops`) and scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from jax.extend.core import Var
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, At, Cuts, Index, Memory, Vec
from onescan.emit.builder import Builder
from onescan.emit.interleave import regrouping
from onescan.emit.loops import Loops, vectors_at_once
from onescan.emit.prefetch import Span
from onescan.loop import Atom, Equation
from onescan.plan.plan import Lane, Plan

#: elementwise values dearer than this (in operations) are not computed twice
CHEAP = 1
#: operations for each element of a value that pulling some of them may take
MOST_AGAIN = 1.0
#: operations of a chain that are done at once, whatever its length: pulling a value
#: calls as many functions, one inside the other, and Python bounds that
DEEPEST = 64


class Emitter(Loops):
    """One kernel function under construction."""

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        self.entry = ir.IRBuilder(function.append_basic_block("entry"))
        start = function.append_basic_block("start")
        super().__init__(plan, function, self.builder(start))
        self.b.longest = plan.longest
        self.bases: dict[Lane, ty.Value | int] = {}
        self.stack_bytes = 0
        self.body: Any = None  # the innermost body being emitted
        self.ahead: list[Span] = []  # memory that the next step will touch
        self.rooms: dict[Any, list[Memory]] = {}  # scratch that rules use in turns
        self.weights: dict[Any, Any] = {}  # matrices made ready before the first step
        self.weight_bytes = 0  # of those that lie where values do
        self.ready: dict[int, Any] = {}  # positions held inside before the first step
        self.routines: dict[Any, Any] = {}  # functions that the kernel calls

    #: what writes instructions
    builder: type[Any] = Builder
    #: whether operations that need not wait for each other should stand together
    early = False
    #: whether operands are read by loads that know them never to be written
    has_read_only_loads = False
    #: whether memory of the next step is fetched while this one computes
    fetches_ahead = False
    #: whether a carry may be written while its old value is read, place by place
    renews_in_place = True
    #: whether the rounds of while loops that have few are written one after the other
    unrolls_whiles = False
    #: whether those elements of a value are computed that are read, where they are few
    pulls_parts = False
    #: whether an update by itself is left out by a branch, rather than by a selection
    branches_over_updates = False
    #: choices that are guessed, by the identity of their equations
    late: frozenset[int] = frozenset()
    #: whether long code that is needed in several places is called there
    has_routines = False
    #: how primitives are emitted in this kind of kernel
    rules: Mapping[str, Any] = MappingProxyType({})

    def sync(self) -> None:
        """Let all who work on this tile meet, before all read what one wrote."""

    def before_a_branch(self) -> None:
        """Do what must not be left to code that only some tiles run."""

    def finish(self) -> None:
        """Do what is left to do after everything else."""

    def begin_at(self, block: ir.Block) -> None:
        """Go on at a block that may be reached from several places."""
        self.b.position_at_end(block)

    @contextmanager
    def writing(self, function: ir.Function) -> Iterator[None]:
        """Code of another function, which has no memory of its own."""
        outside = self.function, self.b
        self.function = function
        self.b = self.builder(function.append_basic_block("entry"))
        yield
        self.function, self.b = outside

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Code that each of those who work on a tile runs whole."""
        yield

    # memory

    def scratch(
        self, shape: tuple[int, ...], lanes: tuple[Lane | None, ...], dtype: Any
    ) -> Memory:
        """Fresh memory for an array; what vectors lie along is innermost."""
        dtype = np.dtype(dtype)
        held = next((i for i, l in enumerate(lanes) if l and l.vector), None)
        inner = self.plan.minor(shape) if held is None else held
        order = sorted(range(len(shape)), key=lambda i: (i == inner, i))
        strides, size = [0] * len(shape), 1
        for i in reversed(order):
            strides[i] = size
            size *= shape[i]
        kind = ir.ArrayType(ty.memory_type(dtype), max(size, 1))
        pointer = self.allocated(kind, size * dtype.itemsize)
        return Memory(pointer, dtype, tuple(strides), 0, 64)

    def allocated(self, kind: ir.Type, size: int) -> ty.Value:
        """So many bytes, for as long as the kernel runs: on the stack."""
        pointer: Any = self.entry.alloca(kind)
        pointer.align = 64
        self.stack_bytes += size
        return opaque(pointer)

    def lazy(
        self,
        var: Atom,
        at: At,
        operands: Iterable[Array] = (),
        cost: int = 0,
        dtype: Any = None,
        moving: bool = False,
        pointwise: bool = False,
    ) -> Array:
        """The value of `var`, computed where it is pulled.

        It is `moving` where `at` uses what this step computed, besides operands, and
        `pointwise` where it pulls all operands at its own index.
        """
        operands = tuple(operands)
        steady = bool(operands) and not moving and all(a.steady for a in operands)
        moved = (a.elsewhere if pointwise else a.reads for a in operands)
        shared = frozenset().union(*(a.shared for a in operands))
        alone = sum(a.own_cost for a in operands)
        return Array(
            shape=self.plan.local_shape(var),
            dtype=np.dtype(var.aval.dtype if dtype is None else dtype),
            at=at,
            reads=frozenset().union(*(a.reads for a in operands)),
            elsewhere=frozenset().union(*moved),
            cost=cost + alone + sum(each for _, each in shared),
            shared=shared,
            depth=1 + max((a.depth for a in operands), default=0),
            lanes=self.plan.local_lanes(var),
            steady=steady,
            cuts=_joined(var, operands) if pointwise else (),
            patchwork=any(a.patchwork for a in operands),
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

    def fresh(self, var: Atom) -> Array:
        """Scratch for the value of `var`, to be filled by its rule."""
        shape, lanes = self.plan.local_shape(var), self.plan.local_lanes(var)
        return self.stored(self.scratch(shape, lanes, var.aval.dtype), shape, lanes)

    def put(self, target: Array, source: Array, vector: int | None = -1) -> None:
        """Store every element of `source` into the memory of `target`."""
        assert target.memory is not None
        memory = target.memory
        if memory.group > 1:
            self._put_groups([target], [source])
            return
        self.nest(
            target.shape,
            target.lanes,
            lambda index: memory.store(self.b, index, source.at(index)),
            vector,
            source.cost,
            max((regrouping(read.group) for read in source.reads), default=1),
            vectors_at_once(source.cost, memory.dtype.itemsize),
        )

    def put_parts(self, targets: Sequence[Array], sources: Sequence[Array]) -> None:
        """The same for all parts of numbers that stand side by side in one memory."""
        memories: list[Any] = [target.memory for target in targets]
        if memories[0].group > 1:
            self._put_groups(targets, sources)
            return

        def visit(index: tuple[Index, ...]) -> None:
            values = [source.at(index) for source in sources]
            for memory, value in zip(memories, values, strict=True):
                memory.store(self.b, index, value)

        cost = sum(source.cost for source in sources)
        self.nest(targets[0].shape, targets[0].lanes, visit, cost=cost)

    def _put_groups(self, targets: Sequence[Array], sources: Sequence[Array]) -> None:
        """Store lanes whose numbers lie side by side, whole groups at a time."""
        target, *_ = targets
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
            values = [source.at(place) for place in places for source in sources]
            if any(isinstance(i, Vec) for i in index):
                memory.store_group(self.b, index, values)
                return
            ends = [(t, place) for place in places for t in targets]
            for (each, place), value in zip(ends, values, strict=True):
                each.memory.store(self.b, place, value)  # type: ignore[union-attr]

        along = memory.strides.index(memory.group)
        cost = sum(source.cost for source in sources) * len(numbers)
        moves = regrouping(memory.group) * len(numbers)
        self.nest(tuple(outer), target.lanes, visit, along, cost, moves)

    def keeps(self, body: Any, var: Atom, array: Array) -> bool:
        """Whether a value that could be computed where it is pulled is put away."""
        often = body.uses[var] > 1 and array.cost > CHEAP
        return (often and not self.pulls(var, array)) or var in self.plan.stored

    def pulls(self, var: Atom, array: Array) -> bool:
        """Whether a value of which little is read is computed where that is pulled."""
        if not isinstance(var, Var) or array.memory is not None:
            return False
        share = self.body.in_part.get(var)
        return share is not None and share * array.cost <= MOST_AGAIN

    def computed_once(self, var: Atom, array: Array) -> Array:
        """A value that is not put away though several pull it, all at one index."""
        return array

    def materialise(self, array: Array) -> Array:
        """The same values, standing in memory."""
        return array if array.memory is not None else self.copied(array)

    def reading(self, arrays: Iterable[Array]) -> None:
        """Make sure that what is read next is there."""
        return

    def once(self, array: Array) -> Array:
        """The same values, cheap enough to be pulled many times."""
        return array if array.cost <= CHEAP else self.materialise(array)

    def pulled_often(self, var: Atom, array: Array, out: Atom) -> Array:
        """A value, for `out`, which pulls each of its elements many times."""
        return array

    def overwritable(
        self, eqn: Equation, x: Array, *sources: Array
    ) -> tuple[Array, list[Array]]:
        """Memory with the values of `x` that may be written to, from `sources`."""
        return self.body.overwritable(eqn, x, sources)

    def copied(self, array: Array) -> Array:
        """The same values in memory of their own."""
        memory = self.scratch(array.shape, array.lanes, array.dtype)
        copy = self.stored(memory, array.shape, array.lanes)
        self.put(copy, array)
        return copy

    def apart_from(self, target: Array, sources: Iterable[Array]) -> list[Array]:
        """The same values, not read from memory that is about to be written."""
        return [
            self.copied(source) if target.memory in source.reads else source
            for source in sources
        ]

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
        pointer = opaque(data)
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
        self.before_a_branch()
        with self.b.if_then(first):
            yield


def _joined(var: Atom, operands: tuple[Array, ...]) -> Cuts:
    """The cuts of operands that are pulled at the same index."""
    rank = len(var.aval.shape)
    found = [a.cuts for a in operands if any(a.cuts) and len(a.shape) == rank]
    return tuple(frozenset().union(*sets) for sets in zip(*found, strict=True))


def opaque(pointer: Any) -> ty.Value:
    """llvmlite types the pointers it makes; LLVM's own have no type."""
    pointer.type = ty.PTR
    return pointer
