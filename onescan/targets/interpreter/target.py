"""The interpreter as a target: a plan is its own kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from onescan.loop import LeaveToXla, Loop
from onescan.passes.surround import results_of
from onescan.plan.plan import Plan
from onescan.plan.work import equations
from onescan.targets.base import Lower, Target
from onescan.targets.cpu.machine import Machine
from onescan.targets.cpu.plan import choose
from onescan.targets.interpreter.operations import OPERATIONS
from onescan.targets.interpreter.run import run


@dataclass(frozen=True)
class Interpreter(Target):
    """NumPy, with the plans of a processor."""

    machine: Machine
    platform = "cpu"
    label = "NumPy interpreter"

    @property
    def device(self) -> str:
        return "NumPy, one tile after the other"

    def plan(self, loop: Loop) -> Plan:
        for eqn in equations(loop.body.jaxpr):
            if eqn.primitive.name not in OPERATIONS:
                name = eqn.primitive.name
                raise LeaveToXla(f"the interpreter has no rule for `{name}`")
        return choose(loop, self.machine)

    def build(self, plan: Plan) -> Plan:
        return plan

    def lower(self, plan: Plan, kernel: Plan) -> Lower:
        types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in results_of(plan.loop)]

        def called(*args: Any) -> Sequence[Any]:
            return jax.pure_callback(partial(_run, plan), types, *args)

        return mlir.lower_fun(called, multiple_results=True)

    def stages(self, kernel: Plan) -> Iterator[tuple[str, str]]:
        yield "interpreted", str(kernel.loop.body.jaxpr)


def _run(plan: Plan, *args: Any) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return run(plan, [np.asarray(arg) for arg in args])
