"""What becomes of a loop on each platform, decided as `pipeline.compile_loop` does.

Nothing is compiled here: a `Decision` holds the passes' splits and the plan, from
which the other files of this folder tell where each line runs and why.  A platform
that this machine does not have is told of too, by a chip that many have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax

from onescan import switches
from onescan.loop import Loop
from onescan.lowering import llvm
from onescan.lowering.hook import our_settings
from onescan.passes.split import Split
from onescan.plan.lanes import lane_axes
from onescan.plan.plan import Plan
from onescan.targets import target_of
from onescan.tune.speed import Speed

#: the platforms that are told of: JAX's name, and what people call it
PLATFORMS = {"cpu": "CPU", "cuda": "NVIDIA GPU"}


@dataclass(frozen=True, eq=False)
class Decision:
    """What becomes of a loop on one platform."""

    platform: str
    loop: Loop  # its body flat, if it could be
    splits: tuple[Split, ...] = ()  # what the passes did
    plan: Plan | None = None  # of a loop that becomes a kernel
    kernel: Any = None
    reason: str | None = None  # why XLA keeps it
    together: int = 1  # steps that XLA runs at a time
    speed: Speed | None = None  # of a step of what is left of the loop, by each engine

    @property
    def engine(self) -> str:
        return "native" if self.reason is None else "xla"

    @property
    def core(self) -> Loop:
        """What is left of the loop when the passes have taken out what they can."""
        return self.splits[-1].loop if self.splits else self.loop

    @property
    def bodies(self) -> list[Loop]:
        """The loop before the first pass and after each."""
        return [self.loop, *(split.loop for split in self.splits)]


def decide(loop: Loop, platform: str) -> Decision:
    """Decide about a loop under the options that are in force, for any device."""
    with our_settings(loop), switches.using(engine="auto", strict=False, check=False):
        return _decided(loop, platform)


def _decided(loop: Loop, platform: str) -> Decision:
    if loop.body.effects:
        effects = ", ".join(sorted(map(str, loop.body.effects)))
        return Decision(platform, loop, reason=f"the body has side effects ({effects})")
    if trouble := llvm.trouble():
        return Decision(platform, loop, reason=trouble)
    from onescan.lowering import pipeline  # which needs llvmlite

    target = meant(platform)
    settings = replace(switches.current(), trials=0)
    found = pipeline.decide(loop, target, settings)
    whole = None if found.passed is None else found.passed.whole
    together = 1
    if found.reason is not None and whole and found.unroll > whole.core.unroll:
        together = found.unroll
    first = found.kernels[0] if found.kernels else None
    speed = None if found.choice is None else found.choice.speed
    if speed is None and found.reason is not None:
        speed = target.by_xla(whole.core if whole else found.loop)
    return Decision(
        platform,
        found.loop,
        splits=() if whole is None else tuple(whole.splits),
        plan=None if first is None else first.plan,
        kernel=None if first is None else first.kernel,
        reason=found.reason,
        together=together,
        speed=speed,
    )


def lanes_of(loop: Loop) -> list[int]:
    """The sizes of the axes along which a loop's carry is independent of itself."""
    first, second = loop.num_consts, loop.num_consts + loop.num_carry
    carry: list[Any] = loop.body.jaxpr.invars[first:second]
    held = ([(v, axis[v]) for v in carry if v in axis] for axis in lane_axes(loop))
    return [v.aval.shape[dims[0]] for (v, dims), *_ in filter(None, held)]


def meant(platform: str) -> Any:
    """The target of a platform; a GPU that many have, where this machine has none."""
    if platform == "cuda" and not has_gpu():
        from onescan.targets.nvidia.machine import COMMON
        from onescan.targets.nvidia.target import Nvidia

        return Nvidia(COMMON)
    return target_of(platform)


def has_gpu() -> bool:
    """Whether JAX has an NVIDIA GPU here."""
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


def here() -> str:
    """The platform that JAX runs on by default."""
    backend = jax.default_backend()
    return "cuda" if backend in ("gpu", "cuda") else backend
