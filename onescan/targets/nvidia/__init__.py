"""NVIDIA GPUs: a thread for each lane or a block for each tile, by PTX."""

from __future__ import annotations

from onescan.targets.base import Target

PLATFORM = "cuda"
ABSORBS = False


def current() -> Target:
    """The GPU of this process."""
    from onescan.targets.nvidia.machine import chip
    from onescan.targets.nvidia.target import Nvidia  # which needs llvmlite

    return Nvidia(chip())
