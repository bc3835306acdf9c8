"""JAX's launcher for kernels in PTX."""

from __future__ import annotations

import importlib
from typing import Any

import jax
from jaxlib.mlir import ir

#: the custom call by which JAX launches a kernel that is given as PTX
GPU_TARGET = "triton_kernel_call_ffi"


def gpu_kernel_call(
    name: str,
    code: str,
    capability: int,
    *,
    blocks: int,
    warps: int,
    team: int,
    shared: int,
    buffers: int,
) -> bytes:
    """The launch of a kernel, as JAX's launcher wants it described."""
    launcher = importlib.import_module("jaxlib.gpu_triton")
    kernel = launcher.TritonKernel(name, warps, team, shared, code, "", capability)
    parameters = [launcher.create_array_parameter(0, 0)] * buffers
    call = launcher.TritonKernelCall(kernel, blocks, 1, 1, parameters)
    return call.to_proto(name, b"")


def strings(**values: str | bytes) -> dict[str, Any]:
    """Attributes of a custom call."""
    return {name: ir.StringAttr.get(value) for name, value in values.items()}


def gpu() -> tuple[int, int]:
    """The compute capability (90 for 9.0) and the multiprocessors of the GPU here."""
    device: Any = jax.local_devices(backend="cuda")[0]
    return int(str(device.compute_capability).replace(".", "")), device.core_count


def driver() -> str:
    """What runs kernels on the GPU here; nothing where there is none."""
    try:
        device: Any = jax.local_devices(backend="cuda")[0]
    except RuntimeError:
        return ""
    return f"{device.device_kind}, {device.client.platform_version}"


def runs_on_gpu() -> bool:
    """Whether programs run on a GPU here unless they say otherwise."""
    return jax.default_backend() == "gpu"
