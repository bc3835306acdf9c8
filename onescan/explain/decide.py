"""What becomes of a loop on each platform, decided as `pipeline.compile_loop` does.

Nothing is compiled here: a `Decision` holds the passes' splits and the plan, from
which the other files of this folder tell where each line runs and why.  A platform
that this machine does not have is told of too, by a chip that many have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from onescan import llvm, switches
from onescan.hook import types_of
from onescan.loop import LeaveToXla, Loop
from onescan.passes import PARALLEL_PASSES, PASSES, WIDE_PASSES, XLA_PASSES
from onescan.passes.inline import inline
from onescan.passes.split import Split
from onescan.passes.worth import PARALLEL_DEVICES, keeps_busy
from onescan.plan.choose import Machine, choose
from onescan.plan.gpu import Chip
from onescan.plan.plan import Plan
from onescan.plan.profit import require_profit
from onescan.plan.tiled import tiled
from onescan.plan.together import steps_together

#: the platforms that are told of: JAX's name, and what people call it
PLATFORMS = {"cpu": "CPU", "cuda": "NVIDIA GPU"}
#: the chip that is meant where this machine has none: H100 and H200
ASSUMED = Chip(90, 132)


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
    with types_of(loop), switches.using(engine="auto", strict=False, check=False):
        return _decided(loop, platform)


def _decided(loop: Loop, platform: str) -> Decision:
    if loop.body.effects:
        effects = ", ".join(sorted(map(str, loop.body.effects)))
        return Decision(platform, loop, reason=f"the body has side effects ({effects})")
    if trouble := llvm.trouble():
        return Decision(platform, loop, reason=trouble)
    from onescan.pipeline import Smaller  # which needs llvmlite

    if loop.length == 0:
        return Decision(platform, loop, reason="the loop has no steps")
    try:
        loop = inline(loop, platform)
    except LeaveToXla as reason:
        return Decision(platform, loop, reason=str(reason))
    wide = platform in PARALLEL_DEVICES
    last = PARALLEL_PASSES if wide and not switches.current().sequential else ()
    smaller = Smaller.of(loop, (*(WIDE_PASSES if wide else PASSES), *last))
    try:
        plan, kernel = _planned(smaller.core, platform)
        return Decision(platform, loop, tuple(smaller.splits), plan, kernel)
    except LeaveToXla as left:
        reason = str(left)
    smaller = Smaller.of(loop, (*XLA_PASSES, *last))
    together = steps_together(smaller.core) if platform == "cuda" else 1
    splits = tuple(smaller.splits)
    if together <= smaller.core.unroll:
        together = 1
        if all(platform == "cpu" and keeps_busy(eqn) for eqn in smaller.moved):
            splits = ()
    return Decision(platform, loop, splits, reason=reason, together=together)


def _planned(loop: Loop, platform: str) -> tuple[Plan | None, Any]:
    """How a kernel lays the loop over the machine; raises what keeps it from one."""
    if not loop.body.out_avals:
        return None, None  # the passes left no loop
    from onescan import pipeline
    from onescan.emit.support import require_supported

    require_supported(loop)
    if platform == "cuda":
        require_profit(loop, platform)
        return pipeline.planned_on_gpu(loop, chip())
    plan = choose(loop, pipeline.host())
    require_profit(loop, platform, lambda eqn: tiled(plan, eqn) is not None)
    return pipeline.verified(plan)


def chip() -> Chip:
    """The GPU of this machine, or one that many have."""
    from onescan import pipeline

    return pipeline.chip() if has_gpu() else ASSUMED


def machine() -> Machine | None:
    """The processor of this machine, if there is a compiler for it."""
    if llvm.trouble():
        return None
    from onescan import pipeline

    return pipeline.host()


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
