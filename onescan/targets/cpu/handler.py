"""What stands between XLA's FFI and a kernel.

XLA calls the one target of `registry.py`, which calls ``handler(frame)`` of the kernel
that a call site names.  The handler of a kernel passes its constants on to
``onescan_run`` of `pool.ll`, which is compiled once per process: it answers XLA's
questions about the handler, collects the buffers, and calls the kernel, on several
threads of XLA's own pool where that was asked for.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from onescan.runtime import compiler
from onescan.targets.cpu import available, interrupts

POOL = Path(__file__).with_name("pool.ll")
REGISTRY = Path(__file__).with_name("registry.ll")

# What a processor is told while it waits in a loop.
PAUSES = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
}

# How a thread sleeps until a number changes (its lower half is compared with what was
# seen), and is woken: by Linux's futex, whose number differs; elsewhere it gives way.
FUTEX = """
declare i64 @syscall(i64, ...)
define internal void @sleep(ptr %number, i32 %seen) nounwind {{
  %ignored = call i64 (i64, ...) @syscall(
    i64 {number}, ptr %number, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  ret void
}}
define internal void @wake(ptr %number) nounwind {{
  %ignored = call i64 (i64, ...) @syscall(
    i64 {number}, ptr %number, i32 129, i32 1, ptr null, ptr null, i32 0)
  ret void
}}
"""
NO_FUTEX = """
declare i32 @sched_yield()
define internal void @sleep(ptr %number, i32 %seen) nounwind {
  %ignored = call i32 @sched_yield()
  ret void
}
define internal void @wake(ptr %number) nounwind {
  ret void
}
"""
FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98}

# How large pages are asked for (MADV_HUGEPAGE), where that can be.
ADVISE = """
declare i32 @madvise(ptr, i64, i32)
define internal void @advise(ptr %page, i64 %size) nounwind {
  %ignored = call i32 @madvise(ptr %page, i64 %size, i32 14)
  ret void
}
"""
NO_ADVICE = """
define internal void @advise(ptr %page, i64 %size) nounwind {
  ret void
}
"""
#: what handlers call, and the word that kernels look at
USED = ("onescan_run", "onescan_large", "onescan_room", "onescan_stop")
#: what `registry.py` uses
KEPT = "add complete find release remove instantiate execute state_type idle lock"
KEEPING = tuple(f"onescan_{name}" for name in KEPT.split())
#: bytes of a result from which that is worth a call of the system: two large pages
LARGE = 4 << 20


def handler_text(
    num_operands: int,
    num_results: int,
    tiles: int,
    grain: int,
    result_bytes: Sequence[int] = (),
    look: int = 0,
    heap: int = 0,
) -> str:
    """The handler of a kernel, to be appended to the text of the kernel's module.

    A kernel whose tiles take `heap` bytes each is only called if there are as many.
    """
    large = "\n".join(
        f"  call void @onescan_large(ptr %frame, i64 {i}, i64 {size})"
        for i, size in enumerate(result_bytes)
        if size >= LARGE
    )
    room = f"""
  %error = call ptr @onescan_room(ptr %frame, i64 {heap}, i64 {tiles})
  %lacking = icmp ne ptr %error, null
  br i1 %lacking, label %full, label %call
full:
  ret ptr %error
call:"""
    return f"""
declare ptr @onescan_run(ptr, ptr, i64, i64, i64, i64, i64)
declare void @onescan_large(ptr, i64, i64)
declare ptr @onescan_room(ptr, i64, i64)

define ptr @handler(ptr %frame) nounwind {{
{large}{room if heap else ""}
  %result = tail call ptr @onescan_run(
    ptr %frame, ptr @kernel, i64 {num_operands}, i64 {num_results},
    i64 {tiles}, i64 {grain}, i64 {look})
  ret ptr %result
}}
"""


def runtime() -> dict[str, int]:
    """The addresses of what handlers and kernels use."""
    return {name: loaded()[name] for name in USED}


@functools.cache
def ctrl_c() -> interrupts.Interrupts:
    """Ctrl-C, as the kernels of this process see it."""
    return interrupts.Interrupts(loaded())


@functools.cache
def loaded() -> dict[str, int]:
    """The addresses of all that the runtime has, compiled on first use."""
    return load(runtime_text())


def runtime_text() -> str:
    """`pool.ll`, `registry.ll` and `interrupt.ll` for the platform at hand."""
    processor = compiler.triple().split("-")[0]
    pause = PAUSES.get(processor, "")
    return (
        f'target triple = "{compiler.triple()}"\n'
        f'target datalayout = "{compiler.data_layout()}"\n'
        f"{POOL.read_text()}\n{interrupts.text()}\n{REGISTRY.read_text()}\n"
        f"define internal void @pause() nounwind {{\n  {pause}\n  ret void\n}}\n"
        f"{ADVISE if sys.platform == 'linux' else NO_ADVICE}"
        f"{_waiting(processor)}"
    )


def _waiting(processor: str) -> str:
    """How threads wait for each other on a processor, under the system at hand."""
    number = FUTEX_NUMBERS.get(processor)
    if number is None or sys.platform != "linux":
        return NO_FUTEX
    return FUTEX.format(number=number)


def load(text: str, imports: Mapping[str, int] | None = None) -> dict[str, int]:
    """Compile a runtime, tell it how many threads to use, and give its entries."""
    ours = [*USED, *KEEPING, "onescan_cores"]
    exports = list(dict.fromkeys([*ours, *interrupts.WORDS, *interrupts.FUNCTIONS]))
    addresses = compiler.link(text, exports, imports).kept()
    cores = ctypes.c_int64.from_address(addresses["onescan_cores"])
    cores.value = available.cores()
    os.register_at_fork(after_in_child=lambda: setattr(cores, "value", 1))
    return addresses
