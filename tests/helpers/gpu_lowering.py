"""Programs lowered for a GPU on a machine that has none: the launches in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any
from unittest import mock

import jax

from onescan import compat
from onescan.plan.plan import Plan
from onescan.targets.nvidia import launch as gpu
from onescan.targets.nvidia import machine
from onescan.targets.nvidia.launch import Kernel
from onescan.targets.nvidia.machine import Chip
from onescan.targets.nvidia.target import Nvidia

H200 = Chip(90, 132)


@dataclass(frozen=True)
class Launch:
    """A kernel as JAX's launcher is told of it."""

    name: str
    code: str  # PTX
    capability: int
    blocks: int
    warps: int
    team: int  # blocks of a cluster
    shared: int
    buffers: int


@contextmanager
def as_if_on(chip: Chip = H200) -> Iterator[list[Launch]]:
    """Programs lowered for CUDA are meant for this chip; their launches."""
    launches: list[Launch] = []

    def note(name: str, code: str, capability: int, **launch: int) -> bytes:
        launches.append(Launch(name, code, capability, **launch))
        return b"a launch"

    with (
        mock.patch.object(machine, "chip", return_value=chip),
        mock.patch.object(compat, "gpu_kernel_call", note),
    ):
        yield launches


def lowered(f: Callable[..., Any], *args: Any) -> str:
    """The program of a function for a GPU, as text."""
    traced = jax.jit(lambda *xs: f(*xs)).trace(*args)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


def launches_of(f: Callable[..., Any], *args: Any, chip: Chip = H200) -> list[Launch]:
    """The kernels of a function's loops on a chip."""
    with as_if_on(chip) as launches:
        lowered(f, *args)
    return launches


def plans_of(
    f: Callable[..., Any], *args: Any, chip: Chip = H200
) -> list[tuple[Plan, Kernel]]:
    """How a function's loops lie over a chip, and their kernels."""
    found: list[tuple[Plan, Kernel]] = []
    verified = Nvidia.verified

    def note(target: Nvidia, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel]:
        found.append(verified(target, plan, kernel))
        return found[-1]

    with (
        mock.patch.object(Nvidia, "verified", note),
        mock.patch.object(gpu, "_code", return_value=("planned", "")),
    ):
        launches_of(f, *args, chip=chip)
    return found


def shown(plan: Plan, kernel: Kernel) -> str:
    """A launch in a line: blocks, threads, and what each of them has."""
    grid = f"{kernel.blocks} x {kernel.threads}"
    if plan.grid is None or not plan.grid.together:
        return f"{grid}, a thread for each lane"
    rows = prod(lane.extent for lane in plan.lanes)
    block = "a block" if kernel.team == 1 else f"{kernel.team} blocks"
    return f"{grid}, {block} for {rows} lanes, {kernel.shared} bytes shared"
