"""CPUs: vectors and threads, by LLVM."""

from __future__ import annotations

from onescan.targets.base import Target

PLATFORM = "cpu"
ABSORBS = True


def current() -> Target:
    """The processor we are on."""
    from onescan.targets.cpu.machine import host  # which needs llvmlite
    from onescan.targets.cpu.target import Cpu

    return Cpu(host())
