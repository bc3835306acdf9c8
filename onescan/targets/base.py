"""What a target is: a device that loops are compiled for.

A target is a folder beside this file.  Its package says for which of JAX's platforms it
is (`PLATFORM`), whether light work in front of a loop is better done in it (`ABSORBS`),
and has a function `current()`, which gives a `Target` for the device at hand.  All that
differs from device to device is behind these methods; what they share is in `plan` and
`emit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from onescan.loop import Equation, LeaveToXla, Loop
from onescan.passes.split import Pass
from onescan.plan.plan import Plan
from onescan.switches import Settings
from onescan.tune.choose import Choice
from onescan.tune.costs import Costs
from onescan.tune.speed import Speed

#: puts a call into a program: ``(ctx, *operands) -> results``
Lower = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Placed:
    """The call of a kernel in a program, and the types of what it is given there."""

    lower: Callable[[], Lower]  # which compiles it
    types: Sequence[Any]


class TooLarge(LeaveToXla):
    """The values of a step do not fit where the plan puts them; another plan may."""


class Target(ABC):
    """A device, how loops are laid over it, and how their kernels are built."""

    #: JAX's name of the platform
    platform: str
    #: what people call it
    label: str
    #: what the kernels of this target gain from, in order
    passes: tuple[Pass, ...] = ()
    #: the same for loops that XLA keeps
    xla_passes: tuple[Pass, ...] = ()
    #: and where the order of the steps need not be kept
    parallel_passes: tuple[Pass, ...] = ()
    #: at last, when the others have run
    last_passes: tuple[Pass, ...] = ()
    #: whether a kernel can read one operand from two arrays
    reads_two_arrays = False
    #: whether several threads can share a matrix
    shares_matrices = False

    @property
    @abstractmethod
    def device(self) -> str:
        """The device that is meant, in words."""

    @property
    def filled_by_lanes(self) -> str:
        """What independent lanes fill, in words."""
        return "the device"

    @abstractmethod
    def plan(self, loop: Loop) -> Plan:
        """How a loop lies over the device; raises `LeaveToXla` where it should not."""

    @abstractmethod
    def build(self, plan: Plan) -> Any:
        """The kernel of a plan, not compiled yet; `TooLarge` asks for another plan."""

    @abstractmethod
    def lower(self, plan: Plan, kernel: Any) -> Lower:
        """Compile a kernel, and how a program calls it."""

    @abstractmethod
    def stages(self, kernel: Any) -> Iterator[tuple[str, str]]:
        """The kernel on its way to machine code: names and texts, for people."""

    # what a target may add

    def smaller(self, plan: Plan) -> Plan | None:
        """A plan that needs less room than one that was `TooLarge`."""
        return None

    def fitting(self, plan: Plan) -> tuple[Plan, Any]:
        """A plan and its kernel, or ones that need less room."""
        while True:
            try:
                return plan, self.build(plan)
            except TooLarge:
                smaller = self.smaller(plan)
                if smaller is None:
                    raise
                plan = replace(smaller, longest=plan.longest)

    def verified(self, plan: Plan, kernel: Any) -> tuple[Plan, Any]:
        """A plan and its kernel, or better ones after a look at the kernel."""
        return plan, kernel

    def require_profit(self, plan: Plan) -> None:
        """Raise `LeaveToXla` for a loop that XLA runs as well."""
        return

    def longest(self, loop: Loop) -> float:
        """Instructions from which a kernel of a loop takes too long to compile."""
        return inf

    def size(self, kernel: Any) -> int:
        """How many instructions a kernel has, where they are counted."""
        return 0

    def choice(self, plan: Plan, kernel: Any, settings: Settings) -> Choice | None:
        """Which engine should run a loop, where that is predicted or measured."""
        return None

    def tried(
        self, plan: Plan, kernel: Any, expected: Speed, placed: Placed | None
    ) -> Speed:
        """Both engines timed, for a choice that is not measured yet."""
        raise NotImplementedError

    def making(self, kernel: Any) -> float:
        """About how many seconds it takes to compile a kernel, where that is known."""
        return 0.0

    def is_long(self, kernel: Any) -> bool:
        """Whether it takes long to emit, too long for a kernel that counts steps."""
        return False

    @property
    def costs(self) -> Costs | None:
        """What instructions cost on the device, where that is known."""
        return None

    def by_xla(self, loop: Loop) -> Speed | None:
        """How long a step of a loop takes that XLA keeps, where that is predicted."""
        return None

    def is_one_of_xla(self, loop: Loop) -> bool:
        """Whether XLA makes one kernel of a loop that it keeps, and of those inside."""
        return False

    def notes(self, plan: Plan) -> list[str]:
        """What the report says of a plan."""
        return []

    def unrolled(self, loop: Loop) -> int:
        """Steps that XLA should run at a time, of a loop that it keeps."""
        return 1

    def pays(self, loop: Loop) -> bool:
        """Whether a loop that XLA keeps, one step at a time, may become this small."""
        return True

    def keeps_busy(self, eqn: Equation) -> bool:
        """Whether XLA does an equation as well in a loop that it keeps as outside."""
        return False
