"""The door: JAX hands every scan and while loop it lowers to us.

By then JAX's own transformations have run, so gradients, batches and remat
arrive as ordinary loops.  A loop is ours when it was called through
`onescan.scan` or when `install()` is in force; everything else, and everything
the engine leaves, goes on to JAX's own rule unchanged.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr
from jax.extend.core.primitives import scan_p, while_p

from onescan import compat, switches
from onescan.checking.check import lower_both
from onescan.errors import EngineError, EngineWarning
from onescan.loop import LeaveToXla, Loop
from onescan.lowering.absorb import absorbed
from onescan.lowering.batches import seen_axes
from onescan.lowering.known import with_known
from onescan.lowering.llvm import compile_loop
from onescan.lowering.outcome import Left, Native, Slower
from onescan.passes.surround import Lower
from onescan.plan.work import equations
from onescan.reports import kept, rows
from onescan.runtime import beside, memory
from onescan.runtime.garbage import no_collections
from onescan.targets import absorbs, everywhere
from onescan.targets.cpu.available import cores

#: the types that JAX has only where they are enabled
WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))
#: loops of which is kept what became of them
RECENT = 32


@dataclass(frozen=True)
class Failed(Left):
    """A loop left to XLA because the engine broke, which is worth a warning."""

    error: Exception | None = None


def lower_program(lower: Callable[[], Any], program: Jaxpr | None) -> Any:
    """JAX's lowering of a program, with a promise of the code that its kernels are."""
    may_wait = program is not None and _has_loops(program) and memory.left() is None
    with beside.program(threads=cores() if may_wait else 0) as jobs:
        lowered = lower()
    if jobs:
        lowered.keepalive.append(beside.Promise(jobs, partial(switches.kept(), lower)))
    return lowered


def compile_program(compile: Callable[[Any], Any], lowered: Any) -> Any:
    """XLA's compilation of a program, which ends when its kernels are there, too."""
    executable = compile(lowered)
    promises = [x for x in lowered.keepalive or () if isinstance(x, beside.Promise)]
    try:
        for promise in promises:
            promise.keep()
    except beside.NotMade as error:  # once more: what cannot be made is left to XLA
        _of_the_same.cache_clear()
        with beside.program(threads=0):
            return compile(error.lower())
    return executable


def _has_loops(program: Jaxpr) -> bool:
    return any(eqn.primitive in (scan_p, while_p) for eqn in equations(program))


def lower_scan(ctx: Any, *args: Any, **params: Any) -> Sequence[Any]:
    """The lowering rule of JAX's scan primitive."""
    with switches.region_of(ctx):
        mark = compat.mark_of(ctx)
        if not _is_ours(mark):
            return compat.stock_rule(ctx, *args, **params)
        loop = compat.loop_of(params)
        if mark == compat.LEFT and _is_around_others(loop):
            return compat.stock_rule(ctx, *args, **params)
        loop = loop.replace(added_axes=_added_axes(ctx, loop, mark, params, args))
        stock = partial(compat.stock_rule, **params)
        return _lower(ctx, loop, stock, args, inner=mark == compat.INNER)


def _added_axes(
    ctx: Any, loop: Loop, mark: str | None, params: dict[str, Any], args: Any
) -> int:
    """Axes that `jax.vmap` put in front of time, told by the mark or the program."""
    if mark is None and absorbs(compat.platform(ctx) or ""):
        return seen_axes(loop, args)
    return compat.added_axes(mark, params)


def lower_while(ctx: Any, *args: Any, **params: Any) -> Sequence[Any]:
    """The lowering rule of JAX's while primitive."""
    stock = partial(compat.stock_while_rule, **params)
    if compat.is_of_a_scan():
        return stock(ctx, *args)
    with switches.region_of(ctx):
        mark = compat.mark_of(ctx)
        if mark in (compat.INNER, compat.LEFT) or not _is_ours(mark):
            return stock(ctx, *args)
        return _lower(ctx, compat.while_loop_of(params), stock, args, inner=False)


def _is_ours(mark: str | None) -> bool:
    settings = switches.current()
    return bool(settings.installed or mark) and settings.engine != "xla"


def _lower(
    ctx: Any, loop: Loop, stock: Lower, args: Sequence[Any], inner: bool
) -> Sequence[Any]:
    """A loop by us or by JAX's own rule; an `inner` one is no loop of the user's."""
    settings = switches.current()
    changes = {"sequential": True} if inner else {}
    start = time.perf_counter()
    results = passed = None
    asked = len(beside.asked_for())
    undo = compat.undo_point(ctx)
    try:
        with our_settings(loop), switches.using(**changes), no_collections():
            outcome = _outcome(ctx, loop, args)
            check = settings.check and not inner
            lower = lower_both if check else _lower_native
            while isinstance(outcome, Native) and results is None:
                outcome.seen.clear()
                # a copy, because XLA's turn needs a context without traces of ours
                copy = ctx.replace()
                try:
                    results = lower(copy, loop, outcome, args, stock)
                except Slower:  # measured just now, and known from here on
                    undo()
                    _of_the_same.cache_clear()
                    outcome = _outcome(ctx, loop, args)
            if isinstance(outcome, Native):
                outcome = outcome.as_seen()
            elif outcome.lower is not None:
                with _inside(loop, outcome):
                    passed = outcome.lower(ctx.replace(), *args)
    except EngineError:  # a loop inside this one, in strict mode
        raise
    except LeaveToXla as reason:
        undo()
        outcome = Left(str(reason))
    except Exception as error:
        undo()
        reason = f"the engine failed inside ({type(error).__name__}: {error})"
        outcome = Failed(reason, error=error)
    seconds = time.perf_counter() - start
    first = not inner and rows.record(loop, outcome, seconds)
    for job in beside.asked_for()[asked:]:
        job.tell(partial(rows.took_longer, loop, outcome))
    if kept.is_active() and not inner:
        kept.keep(ctx, loop, rows.row_of(loop, outcome), args)
    if results is not None:
        return results

    assert isinstance(outcome, Left)
    if not inner and (settings.strict or settings.engine == "native"):
        cause = outcome.error if isinstance(outcome, Failed) else None
        raise EngineError(f"{loop} was left to XLA: {outcome.reason}.") from cause
    if first and isinstance(outcome, Failed):
        _warn(loop, outcome)
    if passed is not None:
        return passed
    with _inside(loop, outcome):  # and by itself: functions may be called outside, too
        return stock(compat.with_fresh_caches(ctx) if outcome.whole else ctx, *args)


def _inside(loop: Loop, outcome: Left) -> AbstractContextManager[Any]:
    """For the loops in one that is left: where that lost a trial, they get fewer.

    Each would be tried else, as deep as they are nested.  What XLA keeps as a whole has
    none of ours inside.
    """
    if outcome.whole:
        return switches.using(engine="xla")
    changes: dict[str, Any] = {"in_xla": loop.is_while or loop.length != 1}
    if outcome.speed is not None and outcome.speed.measured:
        changes["trials"] = max(0, switches.current().trials - 1)
    return switches.using(**changes)


def _is_around_others(loop: Loop) -> bool:
    """Whether a loop has others inside, or is but one step.

    Loops that were marked to be left are of this kind.  In the forward pass of a
    gradient their mark is found on the loops inside too, which are ours.
    """
    inside = (eqn.primitive.name for eqn in equations(loop.body.jaxpr))
    return loop.length == 1 or "scan" in inside


@contextmanager
def our_settings(loop: Loop) -> Iterator[None]:
    """What the passes trace for a loop is traced as they mean it.

    Users may have JAX refuse that shapes or types are promoted.
    """
    config: Any = jax.config
    with ExitStack() as stack:
        stack.enter_context(_types_of(loop))
        if config.jax_numpy_rank_promotion != "allow":
            stack.enter_context(jax.numpy_rank_promotion("allow"))
        if config.jax_numpy_dtype_promotion != "standard":
            stack.enter_context(jax.numpy_dtype_promotion("standard"))
        yield


def _types_of(loop: Loop) -> AbstractContextManager[Any]:
    """A context in which every type of the loop can be traced.

    A loop may hold 64-bit values where they are not enabled: traced under
    `jax.enable_x64` or fed with arrays that were.  What the passes trace for it
    would be cut to 32 bits there.
    """
    jaxpr = loop.body.jaxpr
    atoms = [*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars]
    for eqn in equations(jaxpr):
        atoms += [*eqn.invars, *eqn.outvars]
    wide = any(getattr(v.aval, "dtype", None) in WIDE for v in atoms)
    return jax.enable_x64(True) if wide else nullcontext()


def _outcome(ctx: Any, loop: Loop, args: Sequence[Any]) -> Native | Left:
    """What becomes of a loop: the program around it decides before the engine."""
    platform = compat.platform(ctx)
    if platform is None:
        return Left("the program is compiled for several platforms")
    if compat.is_export(ctx):
        return Left("the program is exported, and must run where onescan is not")
    if loop.body.effects:
        effects = ", ".join(sorted(map(str, loop.body.effects)))
        return Left(f"the body has side effects ({effects})")
    if any(map(compat.is_kept_from_us, equations(loop.body.jaxpr))):
        return Left('a loop in its body is in a region of engine("xla")')
    if (devices := compat.num_devices(ctx)) > 1:
        return Left(f"the program is sharded over {devices} devices")
    if (chosen := switches.current().engine) in everywhere():
        platform = chosen
    loop = with_known(loop, args)
    if absorbs(platform) and (larger := absorbed(loop, args)) is not None:
        outcome = _compiled(larger.loop, platform)
        if isinstance(outcome, Native):
            return larger.native(outcome)
    return _compiled(loop, platform)


def _compiled(loop: Loop, platform: str) -> Native | Left:
    """What becomes of a loop; layers that are alike are loops with the same body."""
    what = tuple(getattr(loop, field.name) for field in fields(loop))
    return _of_the_same(what, platform, switches.current(), compat.x64_enabled())


@lru_cache(maxsize=RECENT)
def _of_the_same(
    what: tuple[Any, ...], platform: str, settings: switches.Settings, _: bool
) -> Native | Left:
    return compile_loop(Loop(*what), platform, settings)


def _lower_native(
    ctx: Any, loop: Loop, native: Native, args: Sequence[Any], stock: Lower
) -> Sequence[Any]:
    return native.lower(ctx, *args)


def _warn(loop: Loop, outcome: Failed) -> None:
    """Warn at the user's own line, where filters by module can find it."""
    file, _, line = loop.source.rpartition(":")
    message = f"onescan left {loop} to XLA: {outcome.reason}"
    warnings.warn_explicit(
        message, EngineWarning, file or loop.source, int(line) if line.isdigit() else 0
    )


def register() -> None:
    """Put the rules in place; called once, when onescan is imported."""
    compat.register_rules(lower_scan, lower_while)
    compat.register_programs(lower_program, compile_program)
