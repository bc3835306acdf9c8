"""What stands between XLA's FFI and a kernel.

XLA calls ``handler(frame)``.  The handler of a kernel passes its constants on to
``onescan_run`` of `pool.ll`, which is compiled once per process: it answers XLA's
questions about the handler, collects the buffers, and calls the kernel.
"""

from __future__ import annotations

import functools
from pathlib import Path

from onescan.runtime import compiler

POOL = Path(__file__).with_name("pool.ll")


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
def runtime() -> dict[str, int]:
    """The functions of `pool.ll` by name, compiled on first use."""
    header = (
        f'target triple = "{compiler.triple()}"\n'
        f'target datalayout = "{compiler.data_layout()}"\n'
    )
    return compiler.link("onescan", header + POOL.read_text(), ["onescan_run"])
