"""Kernels on the CPU: from an LLVM module to a call in an XLA program.

A kernel is known by a hash of everything its machine code follows from: the module, how
it is called, the processor and LLVM's version.  So the same kernel is compiled once per
process, different kernels never share a name, and the name is the same in the next
process, where JAX may find the program that calls it in its persistent compilation
cache (lowering comes before that search, so by then the kernel is there).  The code is
there as long as anything may call it (`registry.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from llvmlite import ir

from onescan import compat
from onescan.plan.plan import ACROSS
from onescan.plan.profile import Profile
from onescan.runtime import beside, compiler
from onescan.targets.cpu import handler, registry
from onescan.targets.cpu.registry import Code


@dataclass(frozen=True)
class Kernel:
    """A module that defines ``void kernel(ptr buffers, i64 first, i64 last)``.

    `buffers` points to the data pointers of the operands and then of the results;
    the kernel does the tiles from `first` up to `last` of 0 up to `tiles`.  Tiles are
    independent; with `threads` they are spread over XLA's thread pool, at least
    `grain` of them at a time.  Where they may take long, Ctrl-C is looked for after
    every `look` of them.  Large results may come in large pages.  In a module that is
    `finished` there is nothing that LLVM's passes would make better.
    """

    module: ir.Module
    num_operands: int
    num_results: int
    tiles: int
    threads: bool = False
    grain: int = 1
    result_bytes: tuple[int, ...] = ()
    finished: bool = False
    look: int = 0
    profile: Profile | None = None  # what it does, where that was counted
    across: int = ACROSS  # numbers that its vectors lie across

    @property
    def level(self) -> int:
        """How much LLVM optimises it."""
        return 0 if self.finished else compiler.DEFAULT_LEVEL


def lowering(
    code: Code,
    operand_layouts: Sequence[Sequence[int] | None] | None = None,
    result_layouts: Sequence[Sequence[int] | None] | None = None,
) -> Callable[..., Sequence[Any]]:
    """A rule ``(ctx, *operands) -> results`` that puts the call into a program.

    Layouts are orders of dimensions, minor to major; None is row-major.
    """
    rule = jax.ffi.ffi_lowering(
        registry.TARGET,
        operand_layouts=operand_layouts,
        result_layouts=result_layouts,
        has_side_effect=False,
    )

    def lower(ctx: Any, *operands: Any) -> Sequence[Any]:
        compat.keep_alive(ctx, code)
        if code.job is not None:
            beside.needed(code.job)
        return rule(ctx, *operands, **code.attributes)

    return lower


def optimised_ir(kernel: Kernel) -> str:
    """The kernel after LLVM's optimisation, for people and tests."""
    with compiler.optimised(_text(kernel), kernel.level) as module:
        return str(module)


def assembly(kernel: Kernel) -> str:
    """The machine code of the kernel as text, for people and tests."""
    return compiler.assembly(_text(kernel), kernel.level)


def code(kernel: Kernel) -> Code:
    """The machine code of a kernel, compiled on first use."""
    text = _text(kernel)
    imports = handler.runtime()
    handler.ctrl_c().prepare()
    link = partial(compiler.link, text, ["handler", "kernel"], imports, kernel.level)
    return registry.code(_name(kernel, text), link)


def name_of(kernel: Kernel) -> str:
    """The name of a kernel, which stands for all that its machine code follows from."""
    return _name(kernel, _text(kernel))


def _name(kernel: Kernel, text: str) -> str:
    content = f"{compiler.host()}\n{kernel.level}\n{text}"
    return "onescan_" + hashlib.sha256(content.encode()).hexdigest()[:32]


def _text(kernel: Kernel) -> str:
    module = kernel.module
    module.triple = compiler.triple()
    module.data_layout = compiler.data_layout()
    grain = max(1, kernel.grain if kernel.threads else kernel.tiles)
    return str(module) + handler.handler_text(
        kernel.num_operands,
        kernel.num_results,
        kernel.tiles,
        grain,
        kernel.result_bytes,
        kernel.look,
        kernel.profile.heap if kernel.profile is not None else 0,
    )
