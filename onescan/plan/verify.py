"""verify: a plan is a claim, and this is the check: no work is done twice.

Every elementwise operation should be computed as often as its result has elements.
Where a kernel computes it more often, because every reader of a value computes it for
itself or every tile does what all share, the surplus is counted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jax.extend.core import Var

from onescan.loop import Equation, Loop
from onescan.plan.profile import Profile
from onescan.plan.work import work_of

#: the work of a kernel, as a multiple of what is needed, from which it is planned anew
TOO_MUCH = 1.15
#: how often one value may be computed, on average, before it is put into memory
OFTEN = 1.5


@dataclass(frozen=True)
class Repeated:
    """An equation that is computed more often than needed, and the work of that."""

    eqn: Equation
    times: float  # how often each element is computed
    surplus: float  # operations that a kernel with memory for it would not do


@dataclass(frozen=True)
class Verdict:
    """How much a kernel does, as a multiple of what its loop needs."""

    ratio: float
    repeated: tuple[Repeated, ...]

    @property
    def is_good(self) -> bool:
        return self.ratio <= TOO_MUCH

    @property
    def to_store(self) -> frozenset[Any]:
        """The values that should be put into memory, to be computed once."""
        return frozenset(
            v for r in self.repeated for v in r.eqn.outvars if isinstance(v, Var)
        )


def verify(loop: Loop, profile: Profile) -> Verdict:
    """Compare what a kernel computes with what its loop needs."""
    needed = done = 0.0
    repeated = []
    for work in work_of(loop.body.jaxpr, loop.length):
        elements, each = float(work.elements * work.times), max(work.each, 1.0)
        counted = profile.elements.get(id(work.eqn), 0.0) * profile.tiles
        computed = max(counted, elements)
        needed += elements * each
        done += computed * each
        if elements and computed > OFTEN * elements:
            surplus = (computed - elements) * each
            repeated.append(Repeated(work.eqn, computed / elements, surplus))
    repeated.sort(key=lambda r: -r.surplus)
    return Verdict(done / needed if needed else 1.0, tuple(repeated))
