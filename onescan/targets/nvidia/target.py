"""NVIDIA GPUs as a target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from onescan import compat
from onescan.emit.budget import instructions, is_long, longest
from onescan.loop import Equation, LeaveToXla, Loop
from onescan.passes import PARALLEL_PASSES, WIDE_PASSES, XLA_WIDE_PASSES
from onescan.plan.data_parallel import meetings
from onescan.plan.layout import buffer_layouts
from onescan.plan.plan import Plan
from onescan.plan.work import equations
from onescan.primitives import record_of
from onescan.switches import Settings
from onescan.targets.base import Lower, Placed, Target
from onescan.targets.nvidia import launch
from onescan.targets.nvidia.block_plan import ROWS
from onescan.targets.nvidia.build import build
from onescan.targets.nvidia.launch import Kernel
from onescan.targets.nvidia.machine import Chip
from onescan.targets.nvidia.plan import choose
from onescan.targets.nvidia.ptx import ptx
from onescan.targets.nvidia.unrolling import makes_a_graph, unrolled_steps
from onescan.targets.nvidia.warps import WARP
from onescan.targets.trial import tried
from onescan.tune import store
from onescan.tune.choose import Border, Choice
from onescan.tune.choose import choose as choose_engine
from onescan.tune.gpu import by_xla, predicted
from onescan.tune.speed import Speed

#: of 200 random loops on an H200, one in eight lies between these two, and among them
#: all but two of those that are slower as kernels
BORDER = Border(sure=2.0, hopeless=0.5, slower=1.0)
#: seconds of a step for which one tile keeps its blocks busy, while XLA has the whole
#: chip, and from which ratio on such a prediction is trusted (of 12 such loops one,
#: predicted to be 2.4 times as fast, was 0.8 times as fast), or believed where nobody
#: can try it (a hundred boids, predicted to be 1.34 times as fast, were 0.5 times)
BUSY, SURE_IF_BUSY, LIKELY_IF_BUSY = 4e-6, 3.0, 1.5
#: seconds of a step of a single thread from which a block is thought of, and how many
#: times shorter its steps must be; less where its values fill a warp (states of GLA
#: and RWKV-7, predicted to be 2.2 and 2.4 times shorter, are 3.2 and 1.8 times)
LONG_ALONE, SHORTER, SHORTER_IF_FILLED = 5e-7, 2.5, 2.0
#: the same of a block, for which a team is thought of, and seconds in which blocks meet
LONG_TOGETHER, SHORTER_BY_TEAMS, MEETING = 2e-6, 1.6, 3e-7


@dataclass(frozen=True)
class Nvidia(Target):
    """A GPU of a compute capability, with so many multiprocessors."""

    machine: Chip
    platform = "cuda"
    label = "NVIDIA GPU"
    passes = WIDE_PASSES
    xla_passes = XLA_WIDE_PASSES
    parallel_passes = PARALLEL_PASSES
    shares_matrices = True

    @property
    def device(self) -> str:
        major, minor = divmod(self.machine.capability, 10)
        cores = f"{self.machine.cores} multiprocessors"
        return f"compute capability {major}.{minor}, {cores}"

    @property
    def filled_by_lanes(self) -> str:
        return "the threads of a GPU"

    def plan(self, loop: Loop) -> Plan:
        return choose(loop, self.machine)

    def smaller(self, plan: Plan) -> Plan | None:
        """A block for a lane that no thread holds; a block with fewer lanes."""
        assert plan.grid is not None
        rows = prod(lane.extent for lane in plan.lanes if lane is not plan.parallel)
        if plan.rows:
            return choose(plan.loop, self.machine, alone=False)
        if plan.grid.together and rows == 1:
            return None
        most = rows * 3 // 4 if plan.grid.together else ROWS
        return choose(plan.loop, self.machine, most, alone=False)

    def verified(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel]:
        """Blocks for what keeps single threads too long, and teams for what blocks."""
        plan, kernel = self._by_blocks(plan, kernel)
        return self._by_teams(plan, kernel)

    def _by_blocks(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel]:
        assert plan.grid is not None
        if plan.grid.together:
            return plan, kernel
        taken = self._native(plan, kernel)
        if taken < LONG_ALONE:
            return plan, kernel
        other = self._other(plan)
        if other is None:
            return plan, kernel
        least = SHORTER_IF_FILLED if _fills_a_warp(other[0]) else SHORTER
        return other if self._native(*other) * least <= taken else (plan, kernel)

    def _by_teams(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel]:
        assert plan.grid is not None
        several = plan.grid.team > 1 or not plan.grid.together
        if several or plan.rows:
            return plan, kernel
        taken = self._native(plan, kernel)
        if taken < LONG_TOGETHER:
            return plan, kernel
        other = self._other(plan, by_teams=True)
        if other is None or other[0].parallel is None:
            return plan, kernel
        meeting = MEETING * meetings(other[0])
        shorter = (self._native(*other) + meeting) * SHORTER_BY_TEAMS <= taken
        return other if shorter else (plan, kernel)

    def _other(self, plan: Plan, by_teams: bool = False) -> tuple[Plan, Kernel] | None:
        """A plan of a loop by blocks or by teams of them, and its kernel, if any."""
        try:
            other = choose(plan.loop, self.machine, alone=False, easily=by_teams)
            if by_teams and other.parallel is None:
                return None  # before it is built
            return self.fitting(replace(other, longest=plan.longest))
        except LeaveToXla:
            return None

    def _native(self, plan: Plan, kernel: Kernel) -> float:
        """Predicted seconds of a step."""
        return self._predicted(plan, kernel).native or 0.0

    def _predicted(self, plan: Plan, kernel: Kernel) -> Speed:
        assert kernel.profile is not None
        blocks, threads = kernel.blocks * kernel.team, kernel.threads
        cores = self.machine.cores
        return predicted(plan.loop, kernel.profile, blocks, threads, cores)

    def build(self, plan: Plan) -> Kernel:
        assert plan.grid is not None
        per_block = 1 if plan.grid.together else plan.grid.threads
        if plan.parallel is not None:
            per_block = plan.grid.team  # a tile for each block
        module, shared, profile = build(plan, self.machine.shared)
        return Kernel(
            module=module,
            capability=self.machine.capability,
            blocks=-(-plan.tiles // per_block),
            threads=plan.grid.threads,
            team=plan.grid.team,
            shared=shared,
            profile=profile,
        )

    def longest(self, loop: Loop) -> float:
        return longest(loop, on_gpu=True)

    def size(self, kernel: Kernel) -> int:
        return instructions(kernel.module)

    def is_long(self, kernel: Kernel) -> bool:
        return is_long(kernel.module)

    def choice(self, plan: Plan, kernel: Kernel, settings: Settings) -> Choice | None:
        """Threads that have lanes for themselves win, unless each must do too much."""
        assert plan.grid is not None
        if kernel.profile is None:
            return None
        times = self._predicted(plan, kernel)
        alone = not plan.grid.together
        if alone and (times.ratio or 1.0) > BORDER.hopeless:
            return Choice(True, times)
        name = lambda: store.key_of(
            launch.name_of(kernel), self.machine, compat.driver(), *compat.versions()
        )
        here = settings.trials > 0 and compat.runs_on_gpu()
        border = BORDER
        if (times.native or 0.0) >= BUSY and not _has_matrices(plan.loop):
            border = replace(BORDER, sure=SURE_IF_BUSY, slower=LIKELY_IF_BUSY)
        return choose_engine(plan.loop, times, settings.may_measure, name, here, border)

    def tried(
        self, plan: Plan, kernel: Kernel, expected: Speed, placed: Placed | None
    ) -> Speed:
        return tried(self, plan, kernel, expected, placed)

    def by_xla(self, loop: Loop) -> Speed:
        return Speed(xla=by_xla(loop))

    def lower(self, plan: Plan, kernel: Kernel) -> Lower:
        return launch.lowering(kernel, *buffer_layouts(plan))

    def stages(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        yield "llvm", str(kernel.module)
        yield "ptx", ptx(str(kernel.module), kernel.capability)

    def unrolled(self, loop: Loop) -> int:
        return unrolled_steps(loop)

    def pays(self, loop: Loop) -> bool:
        return makes_a_graph(loop)

    def keeps_busy(self, eqn: Equation) -> bool:
        """All but products: their launches are the time of a step, and with less in its
        loop XLA may not make a command buffer of it (on an H200, 0.5x to 1.6x).
        """
        return record_of(eqn).kind != "product"


def _has_matrices(loop: Loop) -> bool:
    """Whether a step factors matrices, for which XLA's libraries wait as long."""
    return any(record_of(eqn).kind == "matrix" for eqn in equations(loop.body.jaxpr))


def _fills_a_warp(plan: Plan) -> bool:
    """Whether some value that a block computes has a number for each thread."""
    made = (v for eqn in plan.loop.body.jaxpr.eqns for v in eqn.outvars)
    return any(prod(plan.local_shape(v)) >= WARP for v in made)
