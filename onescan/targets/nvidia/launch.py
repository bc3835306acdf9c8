"""Kernels on NVIDIA GPUs: from an LLVM module to a call in an XLA program.

JAX's own launcher for kernels in PTX takes ours: the code travels inside the
program, so nothing is registered, and JAX's persistent compilation cache keeps it.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from llvmlite import ir

from onescan import compat
from onescan.plan.profile import Profile
from onescan.targets.nvidia.ptx import ptx

WARP = 32


@dataclass(frozen=True)
class Kernel:
    """A module that defines ``kernel(operands..., results...)``, and its launch."""

    module: ir.Module
    capability: int
    blocks: int  # or teams of them
    threads: int  # of a block
    team: int = 1  # blocks that are launched as one cluster
    shared: int = 0  # bytes that the threads of a block share
    profile: Profile | None = None  # what one thread does, where that was counted


def lowering(
    kernel: Kernel,
    operand_layouts: Sequence[Sequence[int]],
    result_layouts: Sequence[Sequence[int]],
) -> Callable[..., Sequence[Any]]:
    """A rule ``(ctx, *operands) -> results`` that puts the launch into a program.

    Layouts are orders of dimensions, minor to major.
    """
    name, code = _code(str(kernel.module), kernel.capability)
    call = compat.gpu_kernel_call(
        name,
        code,
        kernel.capability,
        blocks=kernel.blocks,
        warps=kernel.threads // WARP,
        team=kernel.team,
        shared=kernel.shared,
        buffers=len(operand_layouts) + len(result_layouts),
    )

    def lower(ctx: Any, *operands: Any) -> Sequence[Any]:
        rule = jax.ffi.ffi_lowering(
            compat.GPU_TARGET,
            operand_layouts=operand_layouts,
            result_layouts=result_layouts,
            backend_config=compat.strings(name=name, opaque=zlib.compress(call)),
            has_side_effect=False,
        )
        return rule(ctx, *operands)

    return lower


def name_of(kernel: Kernel) -> str:
    """The name of a kernel, which stands for all that its code follows from."""
    return _name(str(kernel.module), kernel.capability)


def _name(text: str, capability: int) -> str:
    digest = hashlib.sha256(f"{capability}\n{text}".encode()).hexdigest()
    return f"onescan_{digest[:32]}"


@functools.lru_cache(maxsize=256)
def _code(text: str, capability: int) -> tuple[str, str]:
    """A name made of the kernel's content, and its PTX."""
    name = _name(text, capability)
    return name, ptx(text.replace('@"kernel"', f'@"{name}"'), capability)
