"""What stands between XLA's FFI and a kernel.

XLA calls ``handler(frame)``.  The handler of a kernel passes its constants on to
``onescan_run`` of `pool.ll`, which is compiled once per process: it answers XLA's
questions about the handler, collects the buffers, and calls the kernel, on several
threads of XLA's own pool where that was asked for.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping
from pathlib import Path

from onescan.runtime import compiler

POOL = Path(__file__).with_name("pool.ll")

# What a processor is told while it waits in a loop.
PAUSES = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
}


def handler_text(num_operands: int, num_results: int, tiles: int, grain: int) -> str:
    """The handler of a kernel, to be appended to the text of the kernel's module."""
    return f"""
declare ptr @onescan_run(ptr, ptr, i64, i64, i64, i64)

define ptr @handler(ptr %frame) nounwind {{
  %error = tail call ptr @onescan_run(
    ptr %frame, ptr @kernel, i64 {num_operands}, i64 {num_results},
    i64 {tiles}, i64 {grain})
  ret ptr %error
}}
"""


@functools.cache
def runtime() -> int:
    """The address of ``onescan_run``, compiled on first use."""
    return load(runtime_text())


def runtime_text() -> str:
    """`pool.ll` for the platform at hand."""
    pause = PAUSES.get(compiler.triple().split("-")[0], "")
    return (
        f'target triple = "{compiler.triple()}"\n'
        f'target datalayout = "{compiler.data_layout()}"\n'
        f"{POOL.read_text()}\n"
        f"define internal void @pause() nounwind {{\n  {pause}\n  ret void\n}}\n"
    )


def load(text: str, imports: Mapping[str, int] | None = None) -> int:
    """Compile a runtime, tell it how many threads to use, and give its entry."""
    exports = ["onescan_run", "onescan_cores"]
    addresses = compiler.link(text, exports, imports)
    cores = ctypes.c_int64.from_address(addresses["onescan_cores"])
    cores.value = available_cores()
    os.register_at_fork(after_in_child=lambda: setattr(cores, "value", 1))
    return addresses["onescan_run"]


def available_cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
