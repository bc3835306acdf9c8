"""The way of one loop, top to bottom: passes, plan, emission, registration.

`compile_loop` either gives back a kernel and how to call it, or the reason why
XLA keeps the loop.  The names of the steps are the names that `report()` shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from typing import Any

from jax import lax
from jax.extend.core import JaxprEqn
from jax.interpreters import mlir

from onescan import compat, switches
from onescan.emit.budget import require_short
from onescan.emit.gpu import TooLarge
from onescan.emit.gpu import build as build_for_gpu
from onescan.emit.kernel import build
from onescan.emit.math.features import AMX, F16C
from onescan.emit.matrix import build as build_matrix
from onescan.emit.stripes import build as build_stripes
from onescan.emit.support import require_supported
from onescan.loop import LeaveToXla, Loop, nbytes
from onescan.outcome import Left, Native, Seen
from onescan.passes import (
    PARALLEL_PASSES,
    PASSES,
    WIDE_PASSES,
    XLA_PASSES,
    simplify,
)
from onescan.passes.inline import inline
from onescan.passes.products import by_xla, product_p
from onescan.passes.split import Pass, Split, improved
from onescan.passes.worth import PARALLEL_DEVICES, keeps_busy
from onescan.plan.choose import Machine, choose
from onescan.plan.gpu import Chip
from onescan.plan.gpu import choose as choose_on_gpu
from onescan.plan.matrix import Matrices, blocks_of, is_worth_it
from onescan.plan.plan import Plan
from onescan.plan.profit import require_profit
from onescan.plan.stripes import stripes_of, suits
from onescan.plan.tiled import tiled, told
from onescan.plan.together import steps_together
from onescan.plan.verify import verify
from onescan.runtime import compiler, gpu
from onescan.runtime.cpu import Kernel, lowering, name_of, register
from onescan.runtime.moved import Orders, moved
from onescan.runtime.permission import may_use_tiles
from onescan.speed import Speed
from onescan.surround import (
    Engine,
    Lower,
    arguments,
    bound,
    chunk_of,
    results_of,
    stock,
    surrounded,
)
from onescan.tune import store
from onescan.tune.choose import Choice
from onescan.tune.choose import choose as choose_engine
from onescan.tune.costs import costs_of
from onescan.tune.measure import measured
from onescan.tune.predict import predicted
from onescan.views import views


def compile_loop(loop: Loop, platform: str) -> Native | Left:
    """Decide about one loop, and compile it if it is ours."""
    if loop.length == 0:
        return Left("the loop has no steps")
    try:
        loop = inline(loop, platform)
    except LeaveToXla as reason:
        return Left(str(reason))
    wide = platform in PARALLEL_DEVICES
    last = PARALLEL_PASSES if wide and not switches.current().sequential else ()
    smaller = Smaller.of(loop, (*(WIDE_PASSES if wide else PASSES), *last))
    try:
        seen: Seen = {}
        choices: list[Choice] = []
        engine = partial(native, platform, seen=seen, choices=choices)
        lower = smaller.lowered(engine)
        speed = choices[0].speed if choices else None
        return Native(lower, **smaller.told, speed=speed, seen=seen)
    except LeaveToXla as reason:
        speed = reason.choice.speed if isinstance(reason, Slower) else None
        smaller = Smaller.of(loop, (*XLA_PASSES, *last))
        steps = steps_together(smaller.core) if platform == "cuda" else 1
        if steps > smaller.core.unroll:
            smaller = smaller.saying(f"had XLA run {steps} steps at a time")
            lower = smaller.lowered(lambda core: stock(core.replace(unroll=steps)))
            return Left(str(reason), **smaller.told, speed=speed, lower=lower)
        if all(platform == "cpu" and keeps_busy(eqn) for eqn in smaller.moved):
            return Left(str(reason), speed=speed)
        lower = smaller.lowered(stock)
        return Left(str(reason), **smaller.told, speed=speed, lower=lower)


class Slower(LeaveToXla):
    """A loop that XLA runs faster, and what shows it."""

    def __init__(self, choice: Choice) -> None:
        super().__init__(choice.reason)
        self.choice = choice


@dataclass(frozen=True, eq=False)
class Smaller:
    """A loop and what passes make of it, `steps` steps at a time."""

    loop: Loop
    passes: Sequence[Pass]
    splits: Sequence[Split]
    steps: int
    extra: tuple[str, ...] = ()  # what else there is to tell

    @staticmethod
    def of(loop: Loop, passes: Sequence[Pass]) -> Smaller:
        """All that the passes can do, or next to nothing where memory is short."""
        splits = improved(loop, passes)
        if steps := chunk_of(loop, splits):
            return Smaller(loop, passes, splits, steps)
        passes = (simplify,)
        extra = ("left work in the loop that would need too much memory outside",)
        return Smaller(loop, passes, improved(loop, passes), loop.length, extra)

    @property
    def told(self) -> dict[str, tuple[str, ...]]:
        """What the report says."""
        notes = tuple(note for split in self.splits for note in split.notes)
        names = tuple(dict.fromkeys(split.name for split in self.splits))
        return {"passes": names, "notes": notes + self.extra}

    def saying(self, *more: str) -> Smaller:
        """The same, with more to tell."""
        return replace(self, extra=(*self.extra, *more))

    @property
    def core(self) -> Loop:
        """What is left of the loop."""
        return self.splits[-1].loop if self.splits else self.loop

    @property
    def moved(self) -> list[JaxprEqn]:
        return [eqn for split in self.splits for eqn in split.moved]

    def lowered(self, engine: Engine) -> Lower:
        """How the program runs it, what is left of it by `engine`."""
        if not self.splits:
            return engine(self.loop)
        return surrounded(self.loop, engine, self.steps, self.passes)


def native(
    platform: str, loop: Loop, seen: Seen, choices: list[Choice]
) -> Callable[..., Sequence[Any]]:
    """The loop as one kernel, and how the program calls it."""
    if platform not in ("cpu", "cuda"):
        raise LeaveToXla(f"there is no native engine for {platform} yet")
    require_supported(loop)
    planned = cache(lambda: choose(loop, host()))
    if switches.current().engine != "native":
        require_profit(loop, platform, lambda eqn: tiled(planned(), eqn) is not None)
    if platform == "cuda":
        return _reading_in_place(*planned_on_gpu(loop, chip()), _call_on_gpu, seen)
    plan, kernel = verified(planned())
    if switches.current().engine != "native":
        require_short(loop, kernel.module)
    if (choice := _choice(plan, kernel)) is not None:
        choices.append(choice)
        if not choice.native and switches.current().engine != "native":
            raise Slower(choice)
    return _reading_in_place(plan, kernel, _call_on_cpu, seen)


def _choice(plan: Plan, kernel: Kernel) -> Choice | None:
    """Which engine should run a loop, and why."""
    if kernel.profile is None:
        return None
    loop, machine, settings = plan.loop, host(), switches.current()
    costs = costs_of(machine.vector_bytes * 8, compiler.triple())
    times = predicted(loop, kernel.profile, machine.cores, costs)
    name = lambda: store.key_of(name_of(kernel), machine, *compat.versions())
    may_measure = settings.tune and settings.engine == "auto" and not settings.check
    return choose_engine(loop, times, may_measure, name, lambda: _trial(loop, times))


#: seconds of a step by prediction that a trial's loop takes in all, and bytes it moves
TRIAL_SECONDS, TRIAL_BYTES = 0.02, 64 << 20


def _trial(loop: Loop, expected: Speed) -> Speed:
    """Both engines on some steps of a loop."""
    steps = min(loop.length, int(TRIAL_SECONDS / (expected.native or 1e-9)) + 1)
    each = nbytes(loop.x_avals + loop.y_avals)
    short = loop.replace(length=max(2, min(steps, TRIAL_BYTES // max(each, 1))))
    plan, kernel = verified(choose(short, host()))
    ours, xla = bound(short, _call_on_cpu(plan, kernel)), bound(short, stock(short))
    return measured(ours, xla, arguments(short), short.length)


def verified(plan: Plan) -> tuple[Plan, Kernel]:
    """A plan and its kernel, planned anew where it would do work twice."""
    kernel = kernel_of(plan)
    if kernel.profile is None:
        return plan, kernel
    verdict = verify(plan.loop, kernel.profile)
    if verdict.is_good or not verdict.to_store:
        return plan, kernel
    again = replace(plan, stored=verdict.to_store)
    other = kernel_of(again)
    assert other.profile is not None
    better = verify(plan.loop, other.profile).ratio < verdict.ratio
    return (again, other) if better else (plan, kernel)


def _reading_in_place(
    plan: Plan,
    kernel: Any,
    call: Callable[..., Callable[..., Sequence[Any]]],
    notes: Seen,
) -> Callable[..., Sequence[Any]]:
    """How the program calls a kernel, or one that reads its operands elsewhere."""

    plainly = cache(partial(call, plan, kernel))

    def lower(ctx: Any, *args: Any) -> Sequence[Any]:
        notes.update(dict.fromkeys(told(plan)))
        seen = views(plan, args, ctx.avals_in)
        if not seen:
            return plainly()(ctx, *args)
        notes.update(dict.fromkeys(seen.notes))
        there = replace(
            plan, starts=seen.starts, tails=seen.tails, counters=seen.counters
        )
        return call(there, None)(ctx.replace(avals_in=seen.types), *seen.args)

    return lower


def _call_on_gpu(plan: Plan, kernel: gpu.Kernel | None) -> Callable[..., Sequence[Any]]:
    kernel = kernel or gpu_kernel_of(plan, chip())
    return gpu.lowering(kernel, *_layouts(plan))


def _call_on_cpu(plan: Plan, kernel: Kernel | None) -> Callable[..., Sequence[Any]]:
    return call_of(plan, register(kernel or kernel_of(plan)))


def planned_on_gpu(loop: Loop, chip: Chip) -> tuple[Plan, gpu.Kernel]:
    """A plan and its kernel.

    A lane whose values are too many for a thread has a block; a block whose lanes
    have too many, fewer of them, until they fit.
    """
    plan = choose_on_gpu(loop, chip)
    while True:
        try:
            return plan, gpu_kernel_of(plan, chip)
        except TooLarge:
            assert plan.grid is not None
            rows = prod(lane.extent for lane in plan.lanes)
            if plan.grid.together and rows == 1:
                raise
            most = {"rows": rows * 3 // 4} if plan.grid.together else {}
            plan = choose_on_gpu(loop, chip, alone=False, **most)


def gpu_kernel_of(plan: Plan, chip: Chip) -> gpu.Kernel:
    """A loop planned for a GPU as a kernel, ready to be compiled."""
    assert plan.grid is not None
    per_block = 1 if plan.grid.together else plan.grid.threads
    module, shared = build_for_gpu(plan, chip.shared)
    return gpu.Kernel(
        module=module,
        capability=chip.capability,
        blocks=-(-plan.tiles // per_block),
        threads=plan.grid.threads,
        team=plan.grid.team,
        shared=shared,
    )


def kernel_of(plan: Plan) -> Kernel:
    """A planned loop as a kernel, ready to be compiled."""
    body = plan.loop.body
    module, profile = build(plan)
    return Kernel(
        module=module,
        num_operands=len(body.in_avals) + len(plan.tails),
        num_results=len(body.out_avals),
        tiles=plan.tiles,
        threads=plan.threads,
        grain=plan.grain,
        result_bytes=tuple(nbytes([aval]) for aval in results_of(plan.loop)),
        profile=profile,
    )


def lower_product(
    ctx: Any, x: Any, y: Any, *, turned: bool, precision: Any
) -> Sequence[Any]:
    """A product of two matrices over all steps, on a CPU."""
    (left, right), (result,) = ctx.avals_in, ctx.avals_out
    rows, columns = result.shape
    matrices = Matrices(rows, columns, right.shape[0], left.dtype, turned)
    if not is_worth_it(matrices) or not _is_plain(precision):
        return by_xla(ctx, x, y, turned=turned, precision=precision)
    if suits(matrices, host()):
        plan = stripes_of(matrices, host())
        module = build_stripes(plan)
    else:
        plan = blocks_of(matrices, host())
        module = build_matrix(plan)
    kernel = Kernel(
        module,
        num_operands=2,
        num_results=1,
        tiles=prod(plan.tiles),
        threads=plan.threads,
        result_bytes=(nbytes([result]),),
        finished=True,
    )
    return lowering(register(kernel))(ctx, x, y)


def _is_plain(precision: Any) -> bool:
    """Whether a product asks for no other algorithm than that of its type."""
    both = precision if isinstance(precision, tuple) else (precision,)
    return all(p is None or isinstance(p, lax.Precision) for p in both)


mlir.register_lowering(product_p, lower_product, platform="cpu")


def call_of(plan: Plan, target: str) -> Callable[..., Sequence[Any]]:
    """How the program calls a registered kernel, in the layouts it wants."""
    return moved(lowering(target, *_layouts(plan)), *_orders(plan))


def _layouts(plan: Plan) -> tuple[list[Any], list[Any]]:
    """Orders of dimensions, minor to major, of the operands and of the results."""
    count = len(plan.loop.body.in_avals)
    layouts: list[Any] = [order[::-1] for order in plan.layouts]
    for i in plan.apart:  # these come in the kernel's own order
        layouts[i] = None
    tails = [layouts[i] for i in plan.tails]
    return layouts[:count] + tails, layouts[count:]


def _orders(plan: Plan) -> tuple[Orders, Orders]:
    """Of the operands and of the results, what the program has to turn."""
    loop = plan.loop
    count = len(loop.body.in_avals)
    types = [*loop.body.in_avals, *loop.body.out_avals]
    orders = {
        i: (compat.stacked(types[i], loop.length), plan.layouts[i]) for i in plan.apart
    }
    operands = {i: order for i, order in orders.items() if i < count}
    return operands, {i - count: o for i, o in orders.items() if i >= count}


@cache
def chip() -> Chip:
    """The GPU of this process."""
    return Chip(*compat.gpu())


@cache
def host() -> Machine:
    """The processor we are on."""
    features = compiler.host_features()
    wide = 64 if "+avx512f" in features else 32 if "+avx2" in features else 16
    found = {"avx512": "+avx512f", "f16c": "+f16c"}
    has = {name for name, flag in found.items() if flag in features}
    if compiler.triple().startswith(("aarch64", "arm64")):
        has.add(F16C)
    if wide == 64 and "+amx-bf16" in features and may_use_tiles():
        has.add(AMX)
    return Machine(wide, cores=os.cpu_count() or 1, features=frozenset(has))
