"""What the hardware and LLVM give a thread of a GPU."""

from __future__ import annotations

from llvmlite import ir

from onescan.emit import types as ty

TID = "llvm.nvvm.read.ptx.sreg.tid.x"
BLOCK = "llvm.nvvm.read.ptx.sreg.ctaid.x"
#: a block's place along an axis that no grid of ours has: 0, which no compiler knows
NOTHING = "llvm.nvvm.read.ptx.sreg.ctaid.y"
RANK = "llvm.nvvm.read.ptx.sreg.cluster.ctarank"


def function_of(module: ir.Module, name: str, kind: ir.FunctionType) -> ty.Value:
    """A function that the hardware or LLVM provides."""
    return module.globals.get(name) or ir.Function(module, kind, name)


def given(b: ty.Builder, name: str) -> ty.Value:
    """One of the numbers a thread is given."""
    return b.call(function_of(b.module, name, ir.FunctionType(ty.I32, [])), [])
