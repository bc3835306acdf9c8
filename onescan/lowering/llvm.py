"""The compiler, or why there is none: llvmlite may be missing, or broken, or have no
code for this machine.  Every loop is XLA's then, and `report()` says so.
"""

from __future__ import annotations

from functools import cache

from onescan.loop import LeaveToXla, Loop
from onescan.lowering.outcome import Left, Native
from onescan.runtime import memory
from onescan.switches import Settings


def compile_loop(loop: Loop, platform: str, settings: Settings) -> Native | Left:
    """Decide about one loop, and compile it if it is ours."""
    try:
        memory.require()
    except LeaveToXla as reason:
        return Left(str(reason))
    if reason := trouble():
        return Left(reason)
    from onescan.lowering import pipeline  # which cannot be imported without llvmlite

    return pipeline.compile_loop(loop, platform, settings)


@cache
def trouble() -> str | None:
    """Why nothing can be compiled here, or None."""
    try:
        import llvmlite.binding as _  # noqa: F401, not installed, or without its library
    except (ImportError, OSError) as error:
        return f"llvmlite cannot be imported here ({type(error).__name__}: {error})"
    from onescan.runtime import compiler

    try:
        compiler.data_layout()
    except (RuntimeError, OSError) as error:
        return f"LLVM makes no code for this machine ({error})"
    return None
