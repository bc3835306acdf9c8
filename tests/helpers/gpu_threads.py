"""A GPU's kernel run by threads of the CPU, as far as its IR has no more than a block.

The IR of the tile is LLVM's: with the numbers that hardware gives a thread as
arguments, the shared memory of its block as an array, and barriers of pthreads, each
thread of each block of a cluster can be a thread here.  Slow, but it finds what a plan
of barriers or of shared rows gets wrong, on machines without a GPU.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from onescan.loop import Loop
from onescan.plan.plan import Grid, Plan
from onescan.runtime import compiler
from onescan.targets.nvidia.launch import Kernel

LIBC = ctypes.CDLL(None)
GUARD = 64 * mmap.PAGESIZE  # around the memory of a block
EXTRA = "i32 %tid, i32 %rank, ptr %rooms, ptr %block, ptr %team"
RUNTIME = """
declare i32 @pthread_barrier_wait(ptr)
@exchanged = internal global [8192 x i32] zeroinitializer
define internal i32 @exchange(i32 %tid, i32 %rank, ptr %block, i32 %value, i32 %step) {
  %room = getelementptr [1024 x i32], ptr @exchanged, i32 %rank
  %mine = getelementptr i32, ptr %room, i32 %tid
  store i32 %value, ptr %mine
  call i32 @pthread_barrier_wait(ptr %block)
  %other = xor i32 %tid, %step
  %its = getelementptr i32, ptr %room, i32 %other
  %got = load i32, ptr %its
  call i32 @pthread_barrier_wait(ptr %block)
  ret i32 %got
}
declare float @exp2f(float)
define internal ptr @room_of(ptr %rooms, i32 %rank) alwaysinline {
  %at = getelementptr ptr, ptr %rooms, i32 %rank
  %room = load ptr, ptr %at
  ret ptr %room
}
"""


def as_cpu(text: str) -> str:
    """The IR of a tile, for a thread of the CPU."""
    text = text[: text.index("define ptx_kernel")] + text[text.index('@"shared" =') :]
    text = re.sub(r'^@"shared" =.*$', "", text, flags=re.M)
    text = re.sub(r"^(declare .*nvvm.*|!.*|target .*)$", "", text, flags=re.M)
    text = re.sub(r", !\S+ !\d+", "", text)
    text = text.replace("define internal void", "define void").replace("noalias", "")
    text = re.sub(r'(@"tile"\([^)]*)\) alwaysinline', rf"\1, {EXTRA})", text)
    start = "%room = call ptr @room_of(ptr %rooms, i32 %rank)"
    text = text.replace("entry:\n", f"entry:\n  {start}\n", 1)
    text = text.replace('[0 x i8] addrspace(3)* @"shared"', "ptr %room")
    text = re.sub(r"addrspacecast \S+ addrspace\(3\) (\S+) to ptr", _same, text)
    text = re.sub(r"addrspacecast ptr (%room) to ptr", _same, text)
    text = re.sub(r'call i32 @"\S*\.tid\.x"\(\)', "add i32 %tid, 0", text)
    text = re.sub(r'call i32 @"\S*\.ctarank"\(\)', "add i32 %rank, 0", text)
    other = r'call ptr @"llvm.nvvm.mapa"\(ptr \S+, i32 (\S+)\)'
    text = re.sub(other, r"call ptr @room_of(ptr %rooms, i32 \1)", text)
    text = re.sub(r"^.*barrier.cluster.arrive.*$", "", text, flags=re.M)
    for name, who in (("barrier.cluster.wait.aligned", "team"), ("barrier0", "block")):
        wait = f"call i32 @pthread_barrier_wait(ptr %{who})"
        text = text.replace(f'call void @"llvm.nvvm.{name}"()', wait)
    # a warp is a block here
    wait = "call i32 @pthread_barrier_wait(ptr %block)"
    text = text.replace('call void @"llvm.nvvm.bar.warp.sync"(i32 -1)', wait)
    shuffle = r'@"llvm.nvvm.shfl.sync.bfly.i32"\(i32 \S+ (i32 \S+, i32 \S+), i32 31\)'
    text = re.sub(shuffle, r"@exchange(i32 %tid, i32 %rank, ptr %block, \1)", text)
    text = text.replace('@"llvm.nvvm.ex2.approx.ftz.f"', "@exp2f")
    near = r'call float @"llvm.nvvm.rcp.approx.ftz.f"\('
    text = re.sub(near + r"float (\S+)\)", r"fdiv float 1.0, \1", text)
    assert "nvvm" not in text, re.findall(r".*nvvm.*", text)[:3]
    header = f'target triple = "{compiler.triple()}"\n'
    header += f'target datalayout = "{compiler.data_layout()}"\n'
    return header + text + RUNTIME


def _same(match: re.Match[str]) -> str:
    return f"getelementptr i8, ptr {match[1]}, i64 0"


def run(plan: Plan, kernel: Kernel, args: list[Any]) -> list[np.ndarray]:
    """The results of a kernel."""
    code = compiler.link(as_cpu(str(kernel.module)), ["tile"])
    loop = plan.loop
    types = [*loop.carry_avals]
    results = [np.full(a.shape, 77, a.dtype) for a in types]
    for aval in loop.y_avals:
        results.append(np.full((loop.length, *aval.shape), 77, aval.dtype))
    buffers = [np.ascontiguousarray(a) for a in args] + results
    pointers = [ctypes.c_void_p(b.ctypes.data) for b in buffers]
    each = kernel.team if plan.parallel else 1  # tiles of a team
    for first in range(0, plan.tiles, each):
        tiles = [first + (rank if plan.parallel else 0) for rank in range(kernel.team)]
        _run_team(code.addresses["tile"], kernel, pointers, tiles)
    return results


def by_a_warp(
    target: Any, loop: Loop, args: list[Any], threads: int = 32
) -> list[np.ndarray]:
    """The results of a loop by one block of a warp, or of so many threads."""
    plan = replace(target.plan(loop), grid=Grid(threads, together=True, team=1))
    return run(plan, target.build(plan), args)


def _run_team(address: int, kernel: Kernel, given: list[Any], tiles: list[int]) -> None:
    kinds = [type(value) for value in given]
    extra = [ctypes.c_int64] + [ctypes.c_int32] * 2 + [ctypes.c_void_p] * 3
    call = ctypes.CFUNCTYPE(None, *kinds, *extra)(address)
    rooms = [_room(kernel.shared) for _ in range(kernel.team)]
    starts = [start for _, start in rooms]
    table = (ctypes.c_void_p * kernel.team)(*starts)
    blocks = [_barrier(kernel.threads) for _ in rooms]
    team = _barrier(kernel.threads * kernel.team)
    threads = [
        threading.Thread(
            target=call,
            args=(*given, tiles[rank], tid, rank, table, blocks[rank], team),
        )
        for rank in range(kernel.team)
        for tid in range(kernel.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _room(size: int) -> tuple[mmap.mmap, int]:
    """Memory of a block; who reads or writes behind or before it does not live on."""
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, whole + 2 * GUARD)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    LIBC.memset(ctypes.c_void_p(first), 0xAB, whole + 2 * GUARD)
    for guard in (first, first + GUARD + whole):
        assert LIBC.mprotect(ctypes.c_void_p(guard), GUARD, 0) == 0
    return memory, first + GUARD + whole - size


def _barrier(count: int) -> Any:
    barrier = ctypes.create_string_buffer(64)
    assert LIBC.pthread_barrier_init(barrier, None, count) == 0
    return barrier
