"""The GPU that a plan is for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from onescan import compat

#: KiB that a block can have for itself, by compute capability
SHARED = {70: 96, 75: 64, 80: 163, 87: 163, 90: 227, 100: 227, 101: 227, 103: 227}


@dataclass(frozen=True)
class Chip:
    """What a plan must know of the GPU."""

    capability: int  # 90 for 9.0
    cores: int  # multiprocessors

    @property
    def shared(self) -> int:
        """Bytes of memory that the threads of a block can share."""
        return SHARED.get(self.capability, 99) << 10


#: what is meant where this machine has no GPU: H100 and H200
COMMON = Chip(90, 132)


@cache
def chip() -> Chip:
    """The GPU of this process."""
    return Chip(*compat.gpu())
