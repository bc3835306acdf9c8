"""Remat policies: what a layer keeps for its gradient, and what it computes again.

A gradient runs the layers a second time, backwards, and needs values of the first
time.  The less each layer keeps, the more it computes again:

| name | kept of each layer |
|---|---|
| ``"none"`` | everything that the gradient reads |
| ``"dots"`` | products with weights (those without batch dimensions) |
| ``"save-names"`` | what `jax.ad_checkpoint.checkpoint_name` has marked |
| ``"offload"`` | the same, in the memory of the host |
| ``"full"`` | nothing but its input |
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from onescan.errors import ScanTypeError, ScanValueError

Policy = Callable[..., Any]

HOST = "pinned_host"


def _offload_names(primitive: Any, *avals: Any, **params: Any) -> Any:
    """Move every value with a name to the host, keep nothing else."""
    if primitive.name != "name":
        return False
    return _offload(params["name"])(primitive, *avals, **params)


@functools.lru_cache(maxsize=256)
def _offload(name: str) -> Policy:
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=[name],
        offload_src="device",
        offload_dst=HOST,
    )


POLICIES: dict[str, Policy | None] = {
    "none": None,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "save-names": jax.checkpoint_policies.save_any_names_but_these(),
    "offload": _offload_names,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def policy_of(remat: str | Policy | None) -> Policy | None:
    """The `jax.checkpoint` policy that `remat` means; None keeps everything."""
    if remat is None:
        return None
    if isinstance(remat, str):
        if remat not in POLICIES:
            raise ScanValueError(
                f"scan_layers: remat={remat!r} is no policy. Choose one of "
                f"{', '.join(map(repr, POLICIES))}, or give a policy of "
                "jax.checkpoint_policies."
            )
        if remat == "offload":
            _check_host_memory()
        return POLICIES[remat]
    if not callable(remat):
        raise ScanTypeError(
            f"scan_layers: remat must be a name, a policy of jax.checkpoint_policies "
            f"or None, but it is {remat!r}. The names are "
            f"{', '.join(map(repr, POLICIES))}."
        )
    return remat


def _check_host_memory() -> None:
    device: Any = getattr(jax.config, "jax_default_device", None) or jax.devices()[0]
    if isinstance(device, str):  # the name of a platform
        device = jax.devices(device)[0]
    kinds = [memory.kind for memory in device.addressable_memories()]
    if HOST not in kinds:
        raise ScanValueError(
            f"scan_layers: remat='offload' needs host memory of the kind {HOST!r}, and "
            f"{device} has {', '.join(map(repr, kinds))}. Use remat='save-names', "
            "which keeps the same values on the device."
        )
