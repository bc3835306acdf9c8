"""Memory for kernels that holds more than a stack should."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit import types as ty

#: bytes to which it is aligned
ALIGNED = 64


def allocate(b: Any, size: int) -> Any:
    """So many bytes of the C library's heap, or none: then the pointer is null."""
    whole = -(-size // ALIGNED) * ALIGNED
    function = _function(b, "aligned_alloc", ty.PTR, [ty.I64, ty.I64])
    function.return_value.add_attribute("noalias")
    return b.call(function, [ir.Constant(ty.I64, n) for n in (ALIGNED, whole)])


def free(b: Any, pointer: Any) -> None:
    b.call(_function(b, "free", ir.VoidType(), [ty.PTR]), [pointer])


def _function(b: Any, name: str, result: ir.Type, given: list[ir.Type]) -> Any:
    found = b.module.globals.get(name)
    return found or ir.Function(b.module, ir.FunctionType(result, given), name)
