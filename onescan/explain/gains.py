"""What the passes are worth: seconds of a step, in the loop and outside of it.

By the costs that choose an engine (`tune/costs.py`), which are good to a factor of two
or so; people are told "about".  There are no such costs for GPUs yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jax.extend.core import JaxprEqn

from onescan.explain.decide import Decision, meant
from onescan.lowering import llvm
from onescan.plan.work import Work, work_in
from onescan.tune.costs import Costs

#: bits of the numbers that most loops hold
NUMBER = 32


@dataclass(frozen=True)
class Prices:
    """What operations cost on this machine, inside a loop and outside of it."""

    costs: Costs
    cores: int
    width: int  # numbers that an instruction of the loop's kernel holds; 0 for XLA
    helpers: int  # cores that run the loop

    @staticmethod
    def of(decision: Decision) -> Prices | None:
        """Those of a loop, where its target has some."""
        if llvm.trouble():
            return None
        target, plan = meant(decision.platform), decision.plan
        costs = target.costs
        if costs is None:
            return None
        cores = target.machine.cores
        if plan is None:
            return Prices(costs, cores, 0, 1)
        wide = plan.vector.extent if plan.vector else plan.width
        helpers = min(cores, plan.tiles) if plan.threads else 1
        return Prices(costs, cores, max(1, wide), helpers)

    def inside(self, eqns: Sequence[JaxprEqn]) -> float:
        """Seconds of a step that computes all of these."""
        works = [work for eqn in eqns for work in work_in(eqn)]
        if not self.width:
            count = sum(work.times for work in works if work.each)
            total = self.costs.xla_operation * sum(work.operations for work in works)
            return 1e-9 * (total + self.costs.xla_equation * count)
        each = self.costs.waiting / self.width / self.helpers
        total = sum(work.operations * self._one(work) for work in works)
        return 1e-9 * each * total

    def outside(self, eqns: Sequence[JaxprEqn], waiting: int) -> float:
        """Seconds that a step's share of the same takes, done for all steps at once.

        So many bytes of a step wait in memory between the loop and that.
        """
        vector = self.costs.vector_bits // NUMBER
        works = [work for eqn in eqns for work in work_in(eqn)]
        total = sum(work.operations * self._many(work) for work in works)
        return 1e-9 * total / vector / self.cores + self.streamed(waiting)

    def streamed(self, count: int) -> float:
        """Seconds of so many bytes that a loop reads or writes in each step."""
        return 1e-9 * self.costs.streamed_byte * count

    def _one(self, work: Work) -> float:
        load = self.costs.load if _is_product(work) else 0.0
        return self.costs.operation + load

    def _many(self, work: Work) -> float:
        """A large product works from its registers; all else waits for itself."""
        return self.costs.operation * (1 if _is_product(work) else self.costs.waiting)


def _is_product(work: Work) -> bool:
    return work.eqn.primitive.name == "dot_general"
