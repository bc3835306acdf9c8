"""All-reduce: what each block of a team has summed of its part, added up in all.

A few numbers every block sends to all others, and each adds them up for itself, in the
same order, so that all have the same.  Of many numbers each block adds up a share, and
sends that to all (a reduce-scatter and an all-gather).  Several of them that stand
together wait for each other just once.

Nobody waits at the end of a step before the memory is used again: few numbers have two
places, by turns, and between two writes of the others every block has met all others.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, as_value
from onescan.emit.convert import rounded
from onescan.emit.reduce import Combine
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.flat_index import flattened, unflattened

#: numbers that every block sends to all others
FEW = 256


def kept_as(dtype: Any) -> np.dtype:
    """The type of a sum that is not rounded yet."""
    return np.dtype(np.float32) if dtype in ty.HALVES else np.dtype(dtype)


def partial_of(e: BlockEmitter, target: Array) -> Array:
    """Room for what this block has of a result."""
    memory = e.scratch(target.shape, target.lanes, kept_as(target.dtype))
    return e.stored(memory, target.shape, target.lanes)


def all_reduced(
    e: BlockEmitter, partial: Array, target: Array, combine: Combine
) -> Array:
    """What the partial results of all blocks add up to, in `target`."""
    way = _sent if prod(target.shape) <= FEW else _scattered
    return way(e, partial, target, combine)


def _sent(e: BlockEmitter, partial: Array, target: Array, combine: Combine) -> Array:
    """Every block has the partial results of all others."""
    shape, dtype = target.shape, partial.dtype
    places = (2, e.blocks, *shape)
    memory = e.from_afar(e.room(prod(places), dtype))
    turn = e.b.and_(e.now, ir.Constant(ty.I64, 1))

    def send(flat: Index) -> None:
        b = e.b
        to, *index = unflattened(b, flat, (e.blocks, *shape))
        value = ty.to_memory(b, partial.at(tuple(index)), dtype)
        place = flattened(b, (turn, e.rank, *index), places)
        b.store_there(value, _there(e, memory, place, to), dtype.itemsize)

    with e.phase():
        e.spread(e.blocks * prod(shape), send)
        e.b.writes.add(id(memory.pointer))

    def add_up(flat: Index) -> None:
        b, index = e.b, unflattened(e.b, flat, shape)
        parts = [
            memory.load(b, (flattened(b, (turn, rank, *index), places),))
            for rank in range(e.blocks)
        ]
        total = rounded(b, in_pairs(e, parts, combine, dtype), target.dtype)
        _memory(target).store(b, index, total)

    def receive() -> None:
        with e.phase():
            if prod(shape) == 1:  # of which each thread has its own
                add_up(0)
            else:
                e.spread(prod(shape), add_up)

    e.settle_later(_memory(target), receive)
    return target


def _scattered(
    e: BlockEmitter, partial: Array, target: Array, combine: Combine
) -> Array:
    """Every block adds up a share, and sends it to all others."""
    shape, dtype = target.shape, partial.dtype
    source, result = e.from_afar(_memory(partial)), e.from_afar(_memory(target))
    count = prod(shape)
    share = -(-count // e.blocks)

    def add_up(flat: Index) -> None:
        b = e.b
        first = b.mul(e.rank, ir.Constant(ty.I64, share))
        place: Any = b.add(first, flat)
        last = ir.Constant(ty.I64, count - 1)
        if count % e.blocks:  # again the last one
            place = b.select(b.icmp_unsigned("<", place, last), place, last)
        element = ty.memory_type(dtype)
        parts = []
        for far in b.distances:
            pointer = _moved(b, source.address(b, place), far)
            value = b.load_there(pointer, element, dtype.itemsize)
            parts.append(ty.from_memory(b, value, dtype))
        total = rounded(b, in_pairs(e, parts, combine, dtype), target.dtype)
        total = ty.to_memory(b, total, target.dtype)
        for far in b.distances:
            pointer = _moved(b, result.address(b, place), far)
            b.store_there(total, pointer, target.dtype.itemsize)

    def exchange() -> None:
        with e.phase():
            e.spread(share, add_up)
            e.b.reads.add(id(source.pointer))
            e.b.writes.add(id(result.pointer))

    e.settle_later(result, exchange)
    return target


def in_pairs(
    e: BlockEmitter, parts: list[ty.Value], combine: Combine, dtype: Any
) -> ty.Value:
    """Partial results, as many as a power of two, added up in pairs."""
    while len(parts) > 1:
        half = len(parts) // 2
        pairs = zip(parts[:half], parts[half:], strict=True)
        parts = [combine(e.b, dtype, x, y) for x, y in pairs]
    return parts[0]


def _memory(array: Array) -> Memory:
    assert array.memory is not None
    return array.memory


def _there(e: BlockEmitter, memory: Memory, place: Index, to: Index) -> ty.Value:
    """Where a number stands in the memory of another block."""
    far = e.distance(e.b, as_value(e.b, to))
    return _moved(e.b, memory.address(e.b, place), far)


def _moved(b: ty.Builder, pointer: ty.Value, far: ty.Value) -> ty.Value:
    return b.inttoptr(b.add(b.ptrtoint(pointer, ty.I64), far), ty.PTR)
