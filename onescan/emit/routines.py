"""Routines: code that works on memories alone, written once for a kernel and called.

Two transforms of one shape are the same code, and LLVM's time grows with the code of a
kernel.  A call costs some nanoseconds, so a routine holds loops.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from math import gcd
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Memory, divisor
from onescan.emit.emitter import Emitter

#: rounds of a nest that is unrolled after a call: what that wrote stands in memory, so
#: unrolled code cannot keep it in registers
UNROLL = 4

#: writes code for some memories
Write = Callable[[Sequence[Memory]], None]


def routine(
    e: Emitter, key: Hashable, memories: Sequence[Memory], write: Write
) -> None:
    """Do what `write` writes, which is the same wherever the key is.

    That uses nothing of the kernel but these memories, of which those that overlap are
    only read.
    """
    if not e.has_routines:
        write(memories)
        return
    if not is_written(e, key, memories):
        e.routines[_full(key, memories)] = _written(e, memories, write)
    e.unroll_whole = UNROLL
    function, runs = e.routines[_full(key, memories)]
    e.b.call(function, [memory.address(e.b, 0) for memory in memories])
    for what, times in runs.items():
        e.b.runs[what] = e.b.runs.get(what, 0.0) + times * e.b.trips


def is_written(e: Emitter, key: Hashable, memories: Sequence[Memory]) -> bool:
    """Whether a routine is there already, for memories that lie like these."""
    return _full(key, memories) in e.routines


def is_plain(memory: Memory | None) -> bool:
    """Whether an array stands somewhere that a routine can be given."""
    return memory is not None and memory.group == 1


def _full(key: Hashable, memories: Sequence[Memory]) -> Hashable:
    layouts = ((m.dtype, m.strides, _align(m), m.parts, m.part) for m in memories)
    return key, *layouts


def _align(memory: Memory) -> int:
    """Bytes to which the start of a memory is aligned."""
    size = memory.dtype.itemsize
    return max(size, gcd(divisor(memory.offset) * size, memory.align))


def _written(
    e: Emitter, memories: Sequence[Memory], write: Write
) -> tuple[ir.Function, dict[Any, float]]:
    """The function, and how often one call of it runs each instruction."""
    module = e.function.module
    kind = ir.FunctionType(ir.VoidType(), [ty.PTR] * len(memories))
    function = ir.Function(module, kind, module.get_unique_name("routine"))
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    for pointer in function.args:
        pointer.add_attribute("noalias")
    given = [
        replace(memory, pointer=pointer, offset=0, align=_align(memory))
        for memory, pointer in zip(memories, function.args, strict=True)
    ]
    with e.writing(function):
        write(given)
        e.b.ret_void()
        return function, e.b.runs
