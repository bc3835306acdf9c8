"""Whether a module is for a GPU: there is no C library, but more instructions."""

from __future__ import annotations

from llvmlite import ir

MARK = "onescan.gpu"


def mark_for_gpu(module: ir.Module) -> None:
    """Say that a module is for a GPU; the mark is part of its text."""
    module.add_named_metadata(MARK)


def is_for_gpu(module: ir.Module) -> bool:
    return MARK in module.namedmetadata
