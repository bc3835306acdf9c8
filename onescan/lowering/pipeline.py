"""The way of one loop, top to bottom: what becomes of it, and how the program runs it.

    inline     calls, key types and dead code gone: one flat body
    passes     what does not belong in a loop is done before or after it
    support    every operation that is left has a rule
    plan       how the loop lies over the device
    emit       the kernel as LLVM IR
    verify     no work is done twice, or the plan is made anew
    choose     which engine runs it, by prediction
    call       the kernel compiled, tried if need be, and its call in the program

`decide` goes down to the choice, and `compile_loop` all the way.  A step that cannot
take a loop raises `LeaveToXla` with the reason, and XLA keeps the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from typing import Any

from onescan.emit.budget import require_short
from onescan.emit.support import require_supported
from onescan.loop import Equation, LeaveToXla, Loop, draws
from onescan.lowering.batches import rows_as_they_lie
from onescan.lowering.outcome import Left, Native, Seen, Slower
from onescan.lowering.real_products import by_parts
from onescan.lowering.recomputed import REASON, decides_by_rounding
from onescan.lowering.views import apart, views
from onescan.passes import KERNEL_PASSES, WHILE_PASSES, XLA_WHILE_PASSES
from onescan.passes.constants import constants
from onescan.passes.inline import inline
from onescan.passes.pairs import without_complex
from onescan.passes.surround import Lower, Passed, stock
from onescan.passes.worth import operations
from onescan.plan.plan import Plan
from onescan.switches import Settings
from onescan.targets import target_of
from onescan.targets.base import Placed, Target
from onescan.tune.choose import Choice, settled

#: the share of a step's operations that must leave a loop which XLA keeps, for it to be
#: taken apart: what waits in memory for it costs too
WORTH = 0.02
#: seconds that XLA takes for a draw of random numbers up to which a kernel is not worth
#: the 0.05 s that it takes to compile: a program that makes its keys has a dozen
BRIEF = 3e-5
#: seconds of a step of XLA's from which a call of a kernel in it, 0.6 us, counts
#: little, and up to which it is most of all that could be saved
CALLED, MOSTLY_CALLED = 1e-5, 2e-6


@dataclass(frozen=True, eq=False)
class Compiled:
    """A loop as a kernel, and why it should be one."""

    plan: Plan
    kernel: Any
    choice: Choice | None = None


@dataclass(frozen=True, eq=False)
class Decision:
    """What becomes of a loop: kernels, or the reason why XLA keeps it."""

    loop: Loop  # its body flat, if it could be
    passed: Passed | None = None  # what the passes did
    kernels: tuple[Compiled, ...] = ()  # for each loop that is left
    reason: str | None = None
    choice: Choice | None = None
    unroll: int = 1  # steps that XLA runs at a time
    whole: bool = False  # XLA keeps the loops inside as well


def compile_loop(loop: Loop, platform: str, settings: Settings) -> Native | Left:
    """Decide about one loop, and compile it if it is ours."""
    try:
        target = target_of(platform)
    except LeaveToXla as reason:
        return Left(str(reason))
    decision = decide(loop, target, settings)
    if decision.reason is None:
        return _native(decision, target)
    return _left(decision)


def decide(loop: Loop, target: Target, settings: Settings) -> Decision:
    """Everything but machine code."""
    if loop.length == 0:
        return Decision(loop, reason="the loop has no steps")
    try:
        loop = inline(loop, target.platform)
    except LeaveToXla as reason:
        return Decision(loop, reason=str(reason))
    if _is_brief(loop, target, settings):
        return Decision(loop, reason="it is over before a kernel could save time")
    if loop.is_while:
        return _decide_while(loop, target, settings)
    parallel = () if settings.sequential else target.parallel_passes
    passes = (*target.passes, *parallel, *KERNEL_PASSES, *target.last_passes)
    passed = Passed.of(loop, passes, settings.memory)
    try:
        kernels = tuple(planned(core, target, settings) for core in passed.cores)
        choice = kernels[0].choice if kernels else None
        return Decision(loop, passed, kernels, choice=choice)
    except LeaveToXla as reason:
        passed = Passed.of(loop, (*target.xla_passes, *parallel), settings.memory)
        unroll = target.unrolled(passed.whole.core)
        return Decision(
            loop,
            passed if _is_worth_it(passed, unroll, target) else None,
            **_why(reason, loop, target),
            unroll=unroll,
        )


def _decide_while(loop: Loop, target: Target, settings: Settings) -> Decision:
    """The same of a while loop, which no pass takes apart."""
    if decides_by_rounding(loop):
        return Decision(loop, reason=REASON, whole=True)
    try:
        given = constants(loop)
        flat = without_complex(given.loop if given else loop)
        require_supported(flat, not target.shares_matrices)
        passes = (*WHILE_PASSES, *target.last_passes)
        passed = Passed.of(loop, passes, settings.memory)
        kernels = tuple(planned(core, target, settings) for core in passed.cores)
        choice = kernels[0].choice if kernels else None
        return Decision(loop, passed, kernels, choice=choice)
    except LeaveToXla as reason:
        passed = Passed.of(loop, XLA_WHILE_PASSES, settings.memory)
        return Decision(
            loop,
            passed if _is_worth_its_memory(passed) else None,
            **_why(reason, loop, target),
        )


def _why(reason: LeaveToXla, loop: Loop, target: Target) -> dict[str, Any]:
    """Why XLA keeps a loop, and whether those inside: a call in each step costs more
    than all of what XLA makes one kernel of.
    """
    choice = reason.choice if isinstance(reason, Slower) else None
    step = (choice.speed.xla or 0.0) if choice is not None else inf
    whole = step < MOSTLY_CALLED or (step < CALLED and target.is_one_of_xla(loop))
    return {"reason": str(reason), "choice": choice, "whole": whole}


def planned(loop: Loop, target: Target, settings: Settings) -> Compiled:
    """A loop as a kernel: planned, emitted, verified, and worth it."""
    forced = settings.engine == "native"
    require_supported(loop, not target.shares_matrices)
    if loop.length == 1 and not loop.is_while and not forced:
        raise LeaveToXla("a loop of one step needs no loop")
    plan = target.plan(loop)
    if not forced:
        target.require_profit(plan)
        plan = replace(plan, longest=target.longest(plan.loop))
    plan, kernel = target.verified(*target.fitting(plan))
    if not forced:
        require_short(target.size(kernel), plan.longest)
    choice = target.choice(plan, kernel, settings)
    if choice is not None and not choice.native and not forced:
        raise Slower(choice)
    return Compiled(plan, kernel, choice)


def _is_brief(loop: Loop, target: Target, settings: Settings) -> bool:
    """Whether the rounds of a draw are over before a kernel could save much."""
    forced = settings.engine == "native" or settings.strict
    if forced or settings.in_xla or not draws(loop):
        return False
    speed = target.by_xla(loop)
    return bool(speed and speed.xla and speed.xla * loop.length < BRIEF)


def _is_worth_it(passed: Passed, unroll: int, target: Target) -> bool:
    """Whether a loop that XLA keeps gains from what the passes did."""
    core = passed.whole.core
    if unroll > core.unroll:
        return True
    if passed.moved and not target.pays(core):
        return False
    return _is_worth_its_memory(passed, target.keeps_busy)


def _is_worth_its_memory(
    passed: Passed, keeps_busy: Callable[[Equation], bool] = lambda _: False
) -> bool:
    """Whether what was taken out is a share of a step that counts."""
    saved = sum(operations(eqn) for eqn in passed.moved if not keeps_busy(eqn))
    whole = sum(map(operations, passed.whole.loop.in_steps().body.jaxpr.eqns))
    return saved > 0 and saved >= WORTH * whole


def _native(decision: Decision, target: Target) -> Native:
    """Kernels, and what is around them."""
    assert decision.passed is not None
    seen = Seen()
    calls = [called(kernel, target, seen) for kernel in decision.kernels]
    speed = decision.choice.speed if decision.choice else None
    lower = decision.passed.around(calls)
    return Native(lower, **decision.passed.told, speed=speed, seen=seen)


def _left(decision: Decision) -> Left:
    """XLA's loop, with what the passes made of it."""
    reason, passed = str(decision.reason), decision.passed
    speed = decision.choice.speed if decision.choice else None
    if passed is None:
        return Left(reason, speed=speed, whole=decision.whole)
    if decision.unroll > passed.whole.core.unroll:
        told = f"had XLA run {decision.unroll} steps at a time"
        passed = replace(passed, extra=(*passed.extra, told))
        cores = [core.replace(unroll=decision.unroll) for core in passed.cores]
    else:
        cores = passed.cores
    lower = passed.around([stock(core) for core in cores])
    return Left(reason, **passed.told, speed=speed, lower=lower, whole=decision.whole)


def called(compiled: Compiled, target: Target, found: Seen) -> Lower:
    """How the program calls a kernel, or one that reads its operands elsewhere.

    What has to be measured is measured here, by the kernel that will run.
    """
    plan = compiled.plan
    plainly = cache(partial(target.lower, plan, compiled.kernel))

    def lower(ctx: Any, *args: Any) -> Sequence[Any]:
        found.notes.update(dict.fromkeys(target.notes(plan)))
        given, zeros = by_parts(plan, args)
        joined = plan.joined - apart(plan, given)
        here = replace(plan, joined=joined, zeros=zeros)
        here = rows_as_they_lie(here, given)
        seen = views(here, given, ctx.avals_in, target.reads_two_arrays)
        plain = not seen or (seen.counts_alone and target.is_long(compiled.kernel))
        if plain and joined == plan.joined and here.layouts == plan.layouts:
            _measure(compiled, target, Placed(plainly, ctx.avals_in), found)
            return plainly()(ctx, *args)
        found.notes.update(dict.fromkeys(seen.notes))
        there = replace(
            here,
            starts=seen.starts,
            wholes=seen.wholes,
            tails=seen.tails,
            counters=seen.counters,
        )
        call = cache(lambda: target.lower(there, target.build(there)))
        whole = None if joined or zeros else Placed(call, seen.types)
        _measure(compiled, target, whole, found)
        return call()(ctx.replace(avals_in=seen.types), *seen.args)

    return lower


def _measure(
    compiled: Compiled, target: Target, placed: Placed | None, found: Seen
) -> None:
    """Time a kernel where that is to decide; `Slower` if XLA's loop is faster."""
    plan, kernel, choice = compiled.plan, compiled.kernel, compiled.choice
    if choice is None or choice.unmeasured is None:
        return
    expected = choice.speed
    choice = settled(choice, lambda: target.tried(plan, kernel, expected, placed))
    if not choice.native:
        raise Slower(choice)
    found.speed = found.speed or choice.speed
