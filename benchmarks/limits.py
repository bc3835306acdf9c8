"""The least time that a step can take: its bytes and operations at the chip's best."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from case import Case


@dataclass(frozen=True)
class Chip:
    bytes_per_second: float  # of a copy, read and written
    operations_per_second: float  # float32, outside the matrix units


#: a copy on the device as measured, float32 operations as the vendor says
CHIPS = {"NVIDIA H200": Chip(4.3e12, 67e12)}


def chip() -> Chip | None:
    """The chip that JAX runs on, if its limits are known."""
    return CHIPS.get(jax.devices()[0].device_kind)


def least_seconds(case: Case, chip: Chip) -> float:
    """Of one step, when nothing but the chip's throughput holds it up."""
    return max(
        case.bytes / chip.bytes_per_second, case.ops / chip.operations_per_second
    )
