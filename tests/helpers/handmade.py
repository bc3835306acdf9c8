"""Kernels written by hand, to test the runtime without the emitter."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from onescan.targets.cpu.kernel import Kernel

I64 = ir.IntType(64)
PTR = ir.PointerType()
F32 = ir.FloatType()

Body = Callable[..., Any]


def per_tile(
    body: Body,
    num_operands: int,
    num_results: int,
    tiles: int,
    threads: bool = False,
    grain: int = 1,
) -> Kernel:
    """A kernel that does ``body(builder, tile, *buffers)`` for each tile."""
    module = ir.Module()
    signature = ir.FunctionType(ir.VoidType(), [PTR, I64, I64])
    function = ir.Function(module, signature, "kernel")
    builder = ir.IRBuilder(function.append_basic_block())
    buffers, first, last = function.args
    data = [
        builder.load(at(builder, buffers, I64(k), PTR), typ=PTR)
        for k in range(num_operands + num_results)
    ]
    with_loop(builder, first, last, lambda tile: body(builder, tile, *data))
    builder.ret_void()
    return Kernel(module, num_operands, num_results, tiles, threads, grain)


def axpy(
    tiles: int, tile: int, threads: bool = False, grain: int = 1, a: float = 2.0
) -> Kernel:
    """a * x + y, elementwise, on `tiles` runs of `tile` elements each."""

    def body(b: ir.IRBuilder, t: Any, x: Any, y: Any, out: Any) -> None:
        def element(k: Any) -> None:
            i = b.add(b.mul(t, I64(tile)), k)
            product = b.fmul(b.load(at(b, x, i), typ=F32), F32(a))
            b.store(b.fadd(product, b.load(at(b, y, i), typ=F32)), at(b, out, i))

        with_loop(b, I64(0), I64(tile), element)

    return per_tile(body, 2, 1, tiles, threads, grain)


def cumulative_sum(length: int, lanes: int, threads: bool = False) -> Kernel:
    """The sum over the first axis so far; each lane is a tile."""

    def body(b: ir.IRBuilder, lane: Any, x: Any, out: Any) -> None:
        with b.goto_entry_block():
            total = b.alloca(F32)
        b.store(F32(0.0), total)

        def step(t: Any) -> None:
            i = b.add(b.mul(t, I64(lanes)), lane)
            b.store(b.fadd(b.load(total), b.load(at(b, x, i), typ=F32)), total)
            b.store(b.load(total), at(b, out, i))

        with_loop(b, I64(0), I64(length), step)

    return per_tile(body, 1, 1, lanes, threads)


def witness(tiles: int, factor: float = 1.0) -> Kernel:
    """Results: the thread that did each tile, and `factor` times the operand.

    Each tile takes a millisecond, so that other threads have time to come.
    """

    def body(b: ir.IRBuilder, t: Any, x: Any, thread: Any, out: Any) -> None:
        module = b.module
        me = declared(module, "pthread_self", I64)
        sleep = declared(module, "usleep", ir.IntType(32), ir.IntType(32))
        b.store(b.call(me, []), at(b, thread, t, I64))
        b.call(sleep, [ir.IntType(32)(1000)])
        b.store(b.fmul(b.load(at(b, x, t), typ=F32), F32(factor)), at(b, out, t))

    return per_tile(body, 1, 2, tiles, threads=True)


def calling(function: Any, tiles: int, threads: bool = False) -> Kernel:
    """Calls ``function(tile)`` of ctypes for each tile; one result, left as it is."""
    address = ctypes.cast(function, ctypes.c_void_p).value

    def body(b: ir.IRBuilder, t: Any, out: Any) -> None:
        kind = ir.FunctionType(ir.VoidType(), [I64])
        b.call(b.inttoptr(I64(address), kind.as_pointer()), [t])

    return per_tile(body, 0, 1, tiles, threads)


def declared(module: ir.Module, name: str, result: Any, *arguments: Any) -> Any:
    """A function of the C library."""
    return ir.Function(module, ir.FunctionType(result, arguments), name)


def at(b: ir.IRBuilder, pointer: Any, index: Any, element: Any = F32) -> Any:
    """The address of an element."""
    return b.gep(pointer, [index], source_etype=element)


def with_loop(b: ir.IRBuilder, first: Any, last: Any, body: Callable[[Any], None]):
    """Emit ``for i in range(first, last): body(i)``."""
    before = b.block
    head = b.append_basic_block("head")
    inside = b.append_basic_block("inside")
    after = b.append_basic_block("after")
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(first, before)
    b.cbranch(b.icmp_unsigned("<", i, last), inside, after)
    b.position_at_end(inside)
    body(i)
    i.add_incoming(b.add(i, I64(1)), b.block)
    b.branch(head)
    b.position_at_end(after)
