"""CPUs as a target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from onescan import compat
from onescan.emit.budget import TooLong, instructions, is_long, longest
from onescan.loop import Equation, LeaveToXla, Loop, nbytes
from onescan.naming import millions
from onescan.passes import LAST_PASSES, PASSES, XLA_PASSES
from onescan.passes.surround import results_of
from onescan.passes.worth import keeps_busy
from onescan.plan.joined import joined, whole_type
from onescan.plan.layout import buffer_layouts, turned_around
from onescan.plan.patience import tiles_between
from onescan.plan.plan import INTERLEAVED, Plan, minor_dimension
from onescan.plan.verify import verify
from onescan.plan.work import equations, step_of
from onescan.primitives import record_of
from onescan.runtime import compiler
from onescan.switches import Settings
from onescan.targets.base import Lower, Placed, Target
from onescan.targets.cpu import products  # noqa: F401, which lowers products
from onescan.targets.cpu.borders import CALLED, FEW_ROUNDS, IN_XLA, border
from onescan.targets.cpu.build import build
from onescan.targets.cpu.joins import joining
from onescan.targets.cpu.kernel import (
    Kernel,
    assembly,
    code,
    lowering,
    name_of,
    optimised_ir,
)
from onescan.targets.cpu.machine import Machine
from onescan.targets.cpu.plan import choose
from onescan.targets.cpu.products.steps import tiled, told
from onescan.targets.cpu.transposes import Orders, transposing
from onescan.targets.trial import tried
from onescan.tune import store
from onescan.tune.choose import Choice
from onescan.tune.choose import choose as choose_engine
from onescan.tune.costs import Costs, costs_of
from onescan.tune.predict import by_xla, is_one_of_xla, predicted
from onescan.tune.speed import Speed

#: multiply-adds of one product in one step from which XLA's library is as good
LARGE_PRODUCT = 30_000_000
#: instructions from which a kernel is written with fewer numbers beside each other
LONG = 5000
#: seconds that LLVM takes for one: 80 us on a Xeon of 2023, 120 us on a Neoverse N1
MAKING = 1e-4
#: instructions of an equation in large bodies, at least, and of a product
LEAST, LEAST_OF_PRODUCT = 3, 200
#: lanes of a vector that is worth it
FEWEST_LANES = 4


@dataclass(frozen=True)
class Cpu(Target):
    """A processor with SIMD vectors and some cores."""

    machine: Machine
    platform = "cpu"
    label = "CPU"
    passes = PASSES
    xla_passes = XLA_PASSES
    last_passes = LAST_PASSES
    reads_two_arrays = True

    @property
    def device(self) -> str:
        cores = f"{self.machine.cores} core" + "s" * (self.machine.cores != 1)
        return f"{cores}, {self.machine.vector_bytes * 8}-bit vectors"

    @property
    def filled_by_lanes(self) -> str:
        return f"vectors of {self.machine.vector_bytes // 4} numbers"

    def plan(self, loop: Loop) -> Plan:
        return joined(choose(loop, self.machine))

    def build(self, plan: Plan) -> Kernel:
        operands, results = plan.buffers
        if _lies_across(plan):
            narrower = replace(plan, across=INTERLEAVED)
            if _at_least(plan) > LONG:
                return self.build(narrower)
            try:
                module, profile = build(replace(plan, longest=min(LONG, plan.longest)))
            except TooLong:
                return self.build(narrower)
            if instructions(module) > LONG:
                return self.build(narrower)
        else:
            module, profile = build(plan)
        return Kernel(
            module=module,
            num_operands=len(operands) + len(plan.tails),
            num_results=len(results),
            tiles=plan.tiles,
            threads=plan.threads,
            grain=plan.grain,
            result_bytes=_result_bytes(plan),
            look=tiles_between(plan),
            profile=profile,
            across=plan.across,
        )

    def fitting(self, plan: Plan) -> tuple[Plan, Kernel]:
        plan, kernel = super().fitting(plan)
        if kernel.across == plan.across:
            return plan, kernel
        return replace(plan, across=kernel.across), kernel

    def smaller(self, plan: Plan) -> Plan | None:
        """The matrices of half as many lanes at a time, where they are large."""
        kinds = {record_of(work.eqn).kind for work in step_of(plan.loop)}
        if plan.vector is None or not kinds & {"matrix", "transform"}:
            return None
        width = plan.vector.extent // 2
        if width < FEWEST_LANES:
            return None
        narrow = replace(self, machine=replace(self.machine, vector_bytes=4 * width))
        plan = narrow.plan(plan.loop)
        fewer = plan.vector is not None and plan.vector.extent <= width
        return plan if fewer else None

    def verified(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel]:
        """Planned anew where the kernel would do work twice, if memory is faster."""
        if kernel.profile is None:
            return plan, kernel
        verdict = verify(plan.loop, kernel.profile)
        if verdict.is_good or not verdict.to_store:
            return plan, kernel
        again = replace(plan, stored=verdict.to_store)
        other = self.build(again)
        better = self._seconds(again, other) < self._seconds(plan, kernel)
        return (again, other) if better else (plan, kernel)

    def _seconds(self, plan: Plan, kernel: Kernel) -> float:
        """Predicted, of one step."""
        assert kernel.profile is not None
        cores = self.machine.cores
        return predicted(plan.loop, kernel.profile, cores, self.costs).native or 0.0

    def require_profit(self, plan: Plan) -> None:
        """XLA's library catches up with our products where they are large."""
        large = [
            work.operations
            for work in step_of(plan.loop)
            if record_of(work.eqn).kind == "product"
            and work.operations >= LARGE_PRODUCT
            and not tiled(plan, work.eqn)
        ]
        if large:
            raise LeaveToXla(
                f"each step has a matrix product of {millions(max(large))} "
                "multiply-adds, which XLA's matrix library does as well"
            )

    def longest(self, loop: Loop) -> float:
        return longest(loop)

    def size(self, kernel: Kernel) -> int:
        return instructions(kernel.module)

    @property
    def costs(self) -> Costs:
        return costs_of(self.machine.vector_bytes * 8, compiler.triple())

    def by_xla(self, loop: Loop) -> Speed:
        return Speed(xla=by_xla(loop, self.machine.cores, self.costs))

    def is_one_of_xla(self, loop: Loop) -> bool:
        return is_one_of_xla(loop, self.costs)

    def is_long(self, kernel: Kernel) -> bool:
        return is_long(kernel.module)

    def choice(self, plan: Plan, kernel: Kernel, settings: Settings) -> Choice | None:
        if kernel.profile is None:
            return None
        loop, machine = plan.loop, self.machine
        types: list[Any] = [*loop.body.in_avals, *loop.body.out_avals]
        turned = sum(prod(types[i].shape) for i in plan.batch_major)
        times = predicted(loop, kernel.profile, machine.cores, self.costs, turned)
        moved = self.costs.xla_turned * turned_around(plan) / loop.about
        rounds = FEW_ROUNDS if loop.is_while else loop.length
        called = CALLED / rounds if settings.in_xla else 0.0
        times = replace(times, native=(times.native or 0.0) + 1e-9 * moved + called)
        name = lambda: store.key_of(name_of(kernel), machine, *compat.versions())
        trusted = border(plan, kernel.profile, self.size(kernel))
        if settings.in_xla:
            trusted = replace(trusted, slower=max(trusted.slower, IN_XLA))
        may_try = settings.trials > 0
        return choose_engine(loop, times, settings.may_measure, name, may_try, trusted)

    def tried(
        self, plan: Plan, kernel: Kernel, expected: Speed, placed: Placed | None
    ) -> Speed:
        """With what is converted around the kernel."""
        found = tried(self, plan, kernel, expected, placed)
        around = 1e-9 * plan.loop.converted * self.costs.streamed_byte
        return replace(found, native=(found.native or 0.0) + around)

    def making(self, kernel: Kernel) -> float:
        return MAKING * self.size(kernel)

    def lower(self, plan: Plan, kernel: Kernel) -> Lower:
        """In the layouts that the kernel wants."""
        call = lowering(code(kernel), *buffer_layouts(plan))
        return joining(transposing(call, *_orders(plan)), plan)

    def stages(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        yield "llvm", str(kernel.module)
        yield "optimised llvm", optimised_ir(kernel)
        yield "assembly", assembly(kernel)

    def notes(self, plan: Plan) -> list[str]:
        return told(plan)

    def keeps_busy(self, eqn: Equation) -> bool:
        return keeps_busy(eqn)


def _at_least(plan: Plan) -> int:
    """Instructions that a kernel will have at least, before it is written."""
    eqns = equations(plan.loop.body.jaxpr)
    large = (record_of(eqn).kind == "product" for eqn in eqns)
    return sum(LEAST_OF_PRODUCT if product else LEAST for product in large)


def _lies_across(plan: Plan) -> bool:
    """Whether vectors lie across more numbers than they must."""
    eqns = plan.loop.body.jaxpr.eqns
    values = [v for eqn in eqns for v in eqn.outvars if not plan.is_laned(v)]
    shapes = {plan.local_shape(v) for v in values}
    width = plan.inner_width
    return plan.across > INTERLEAVED and any(
        plan.minor(shape) != minor_dimension(shape, width, INTERLEAVED)
        for shape in shapes
    )


def _orders(plan: Plan) -> tuple[Orders, Orders]:
    """Of the operands and of the results, what the program has to transpose."""
    loop = plan.loop
    types = [*loop.body.in_avals, *loop.body.out_avals]

    def orders(buffers: list[int]) -> Orders:
        return {
            k: (whole_type(plan, i, _stacked(plan, i, types[i])), order)
            for k, i in enumerate(buffers)
            if i in plan.batch_major
            for order in [plan.layouts[i]]
        }

    operands, results = map(orders, plan.buffers)
    return operands, results


def _result_bytes(plan: Plan) -> tuple[int, ...]:
    types, count = results_of(plan.loop), len(plan.loop.body.in_avals)
    _, results = plan.buffers
    return tuple(nbytes([whole_type(plan, i, types[i - count])]) for i in results)


def _stacked(plan: Plan, i: int, of_step: Any) -> Any:
    """The type of a stacked buffer, of which a loop may read some steps only."""
    return compat.stacked(of_step, plan.wholes.get(i, plan.loop.length))
