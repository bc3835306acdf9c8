"""Programs lowered for a GPU on a machine that has none: the launches in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax

from onescan import compat, pipeline
from onescan.plan.gpu import Chip

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
        mock.patch.object(pipeline, "chip", return_value=chip),
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
