"""What the processor of a module has beyond what LLVM does well by itself.

The emitter marks a module with the features it may count on; the marks are part of
the module's text, and so of the kernel's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import ir

AVX512 = "avx512"  # x86: registers of 64 bytes, powers of two, reciprocals
AMX = "amx"  # x86: products of tiles of bfloat16, which the process may use
GPU = "gpu"  # no C library, but more instructions
F16C = "f16c"  # conversions between float16 and float32: newer x86, all aarch64
FP16 = "fp16"  # arithmetic of float16: aarch64 but for old ones, newest x86
BF16 = "bf16"  # conversions of float32 to bfloat16: newer x86
PAIRS = "pairs"  # x86: sums of two products of 16 bits, in vectors of each width
QUADS = "quads"  # newer x86: sums of four products of 8 bits, and a total
NEON = "neon"  # aarch64: conversions to integers hold at the ends, extremes keep NaN


def allow(module: ir.Module, names: Iterable[str]) -> None:
    """Say that the processor this module is for has these features."""
    for name in sorted(names):
        module.add_named_metadata(f"onescan.{name}")


def has(b: Any, name: str) -> bool:
    """Whether the module that a builder works on may count on a feature."""
    return f"onescan.{name}" in b.module.namedmetadata


def is_x86(b: Any) -> bool:
    """Whether it is for such a processor: the others do more in one instruction."""
    return not has(b, GPU) and not has(b, NEON)
