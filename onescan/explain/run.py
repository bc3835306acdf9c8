"""How a loop will run: the engine on each platform and why, and what a step costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from typing import Any

from onescan import compat
from onescan.explain.advice import advice_for
from onescan.explain.decide import (
    PLATFORMS,
    Decision,
    decide,
    has_gpu,
    here,
    lanes_of,
    meant,
)
from onescan.explain.measure import Times
from onescan.explain.memory import Memory, memory_of
from onescan.explain.notes import Note, notes_of
from onescan.explain.places import PLACES, Place, Placed, placed
from onescan.explain.words import duration, plural
from onescan.loop import Loop, nbytes
from onescan.lowering import llvm
from onescan.lowering.hook import our_settings
from onescan.plan.plan import Plan
from onescan.plan.work import work_of
from onescan.tune.speed import Speed


@dataclass(frozen=True)
class Step:
    """What one step costs, by its types and operations alone."""

    operations: float  # a multiply-add is one
    products: float  # of them, in matrix products
    constants: int  # bytes that are the same in all steps
    carry: int  # bytes, read and written
    x: int
    y: int

    @property
    def touched(self) -> int:
        """Bytes that a step reads and writes."""
        return self.constants + 2 * self.carry + self.x + self.y

    @property
    def intensity(self) -> float:
        """Operations for each byte touched."""
        return self.operations / self.touched if self.touched else 0.0


@dataclass(frozen=True, eq=False)
class OnPlatform:
    """How a loop runs on one platform."""

    decision: Decision

    @property
    def platform(self) -> str:
        return self.decision.platform

    @property
    def name(self) -> str:
        return PLATFORMS[self.platform]

    @property
    def device(self) -> str:
        """The machine that is meant."""
        if self.platform == "cuda":
            if has_gpu():
                return "the GPU of this machine"
            return "as on an H100 or H200: there is no GPU here"
        return "no compiler here" if llvm.trouble() else meant(self.platform).device

    @property
    def engine(self) -> str:
        return self.decision.engine

    @property
    def verdict(self) -> str:
        """Who runs the loop, and why, in a sentence."""
        if self.decision.reason is not None:
            return f"XLA runs this loop: {self.decision.reason}."
        if self.decision.plan is None:
            return "No loop is left: all of it is computed for all steps at once."
        return "The whole loop becomes one native kernel."

    @cached_property
    def layout(self) -> str | None:
        """How the kernel lies over the machine."""
        plan = self.decision.plan
        return None if plan is None else laid_out(plan, self.decision.kernel)

    @property
    def speed(self) -> str | None:
        """How long a step takes, in a sentence."""
        return None if self.decision.speed is None else speed_text(self.decision)

    @cached_property
    def notes(self) -> list[Note]:
        return notes_of(self.decision)

    @cached_property
    def placed(self) -> list[Placed]:
        return list(placed(self.decision))

    @cached_property
    def shares(self) -> dict[Place, float]:
        """Of a step's operations, the part that each place does."""
        total = sum(p.operations for p in self.placed)
        found = dict.fromkeys(PLACES, 0.0)
        for p in self.placed:
            found[p.place] += p.operations / total if total else 0.0
        del found["nowhere"]
        return {place: share for place, share in found.items() if share > 0}

    def to_dict(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "device": self.device,
            "why": self.verdict,
            "layout": self.layout,
            "seconds_per_step": _seconds(self.decision.speed),
            "notes": list(map(str, self.notes)),
            "shares": dict(self.shares),
        }


@dataclass(frozen=True, eq=False)
class Run:
    """How a loop will run, on every platform there is an engine for."""

    loop: Loop
    platforms: tuple[OnPlatform, ...]
    times: Times | None = None  # measured on this machine
    left: str | None = None  # why XLA ran it in the program that it comes from

    @staticmethod
    def of(loop: Loop, times: Times | None = None, left: str | None = None) -> Run:
        platforms = tuple(OnPlatform(decide(loop, p)) for p in PLATFORMS)
        return Run(loop, platforms, times, left)

    @property
    def in_its_program(self) -> str | None:
        """What the program around a loop made of it, where the loop alone differs."""
        if self.left is None or self.left == self.default.decision.reason:
            return None
        return f"In this program XLA ran the loop: {self.left}. By itself:"

    @property
    def default(self) -> OnPlatform:
        """On the platform that JAX uses here."""
        same = [p for p in self.platforms if p.platform == here()]
        return (same or list(self.platforms))[0]

    @cached_property
    def step(self) -> Step:
        loop = self.default.decision.loop
        works = list(work_of(loop.body.jaxpr))
        products = [w for w in works if w.eqn.primitive.name == "dot_general"]
        return Step(
            operations=sum(w.operations for w in works),
            products=sum(w.operations for w in products),
            constants=_bytes(loop.const_avals),
            carry=_bytes(loop.carry_avals),
            x=_bytes(loop.x_avals),
            y=_bytes(loop.y_avals),
        )

    @cached_property
    def memory(self) -> Memory:
        with our_settings(self.loop):
            return memory_of(self.loop)

    @cached_property
    def advice(self) -> list[str]:
        """What would make it faster."""
        return advice_for(self.default.decision)

    def to_dict(self) -> dict[str, Any]:
        step, memory = self.step, self.memory
        return {
            "platforms": {p.platform: p.to_dict() for p in self.platforms},
            "operations_per_step": step.operations,
            "bytes_per_step": step.touched,
            "operations_per_byte": step.intensity,
            "memory": {
                "forward": memory.forward,
                "gradient": {str(c.checkpoint): c.kept for c in memory.choices},
                "why_no_gradient": memory.why_no_gradient,
            },
            "faster": self.advice,
            "seconds_per_step": dict(self.times.by_way) if self.times else None,
        }


def speed_text(decision: Decision) -> str:
    """Predicted or measured seconds of a step, by each engine that could run it.

    A prediction is good to a factor of two or so, and is told as such.
    """
    speed, length = decision.speed, decision.loop.length
    assert speed is not None
    about = "" if speed.measured else "about "
    how = (
        "measured on this machine"
        if speed.measured
        else "predicted, to a factor of two or so"
    )
    own = speed.native if decision.engine == "native" else speed.xla
    other = speed.xla if decision.engine == "native" else speed.native
    loop = "what is left of the loop" if decision.splits else "the loop"
    parts = []
    if own is not None:
        whole = f", {plural(length, 'step')} {about}{duration(own * length)}"
        parts.append(f"A step of {loop} takes {about}{duration(own)}{whole}")
    if other is not None:
        name = "by XLA" if decision.engine == "native" else "as a kernel of ours"
        parts.append(f"{name} a step would take {about}{duration(other)}")
    return f"{'; '.join(parts)} ({how})."


def _seconds(speed: Speed | None) -> dict[str, Any] | None:
    return None if speed is None else asdict(speed)


def laid_out(plan: Plan, kernel: Any) -> str:
    """A plan in words."""
    sizes = lanes_of(plan.loop)
    if sizes:
        axes = f" ({' x '.join(map(str, sizes))})" if len(sizes) > 1 else ""
        lanes = f"{prod(sizes):,} independent lanes{axes}"
    else:
        lanes = "no independent lanes: the numbers of a step need each other"
    where = _on_cpu(plan) if plan.grid is None else _on_gpu(plan, kernel)
    return f"{lanes}; {where}"


def _on_cpu(plan: Plan) -> str:
    wide = plan.vector.extent if plan.vector else plan.width
    if wide == 1 or _is_of_numbers(plan.loop):
        vectors = "one number at a time"
    else:
        vectors = f"vectors of {wide} {'lanes' if plan.vector else 'numbers'}"
    if not plan.threads or plan.tiles == 1:
        return f"{vectors}, on one core"
    return f"{vectors}, {plan.tiles:,} tiles spread over the cores"


def _is_of_numbers(loop: Loop) -> bool:
    atoms: list[Any] = [v for eqn in loop.body.jaxpr.eqns for v in eqn.outvars]
    return all(prod(v.aval.shape) == 1 for v in atoms)


def _on_gpu(plan: Plan, kernel: Any) -> str:
    assert plan.grid is not None
    threads = plan.grid.threads
    if not plan.lanes and not plan.grid.together:
        return "one thread does all of it"
    if not plan.grid.together:
        blocks = plural(kernel.blocks, "block")
        return f"a thread for each lane, in {blocks} of {threads} threads"
    team = f"{kernel.team} blocks" if kernel.team > 1 else "a block"
    lanes = [lane for lane in plan.lanes if lane is not plan.parallel]
    rows = prod(lane.extent for lane in lanes)
    what = f"{rows} lanes" if rows > 1 else "each lane" if lanes else "all of it"
    text = f"{team} of {threads} threads for {what}"
    if plan.parallel is not None:
        size, each = plan.parallel.size, plan.parallel.extent
        text += f", which share an axis: {each} of its {size} positions each"
    return text


def _bytes(avals: list[Any]) -> int:
    return nbytes([compat.physical(aval) for aval in avals])
