"""The door: JAX hands every scan it lowers to `lower_scan`.

By then JAX's own transformations have run, so gradients, batches and remat
arrive as ordinary scans.  A loop is ours when it was called through
`onescan.scan` or when `install()` is in force; everything else, and everything
the engine leaves, goes on to JAX's own rule unchanged.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

from onescan import compat, report, switches
from onescan.check import lower_both
from onescan.errors import EngineError, EngineWarning
from onescan.loop import Loop
from onescan.pipeline import Left, Native, compile_loop


def lower_scan(ctx: Any, *args: Any, **params: Any) -> Sequence[Any]:
    """The lowering rule of JAX's scan primitive."""
    settings = switches.current()
    ours = settings.installed or compat.is_marked(ctx)
    if not ours or settings.engine == "xla":
        return compat.stock_rule(ctx, *args, **params)

    loop = compat.loop_of(params)
    start = time.perf_counter()
    outcome = _outcome(ctx, loop)
    seconds = time.perf_counter() - start
    report.record(loop, outcome, seconds)

    if isinstance(outcome, Left):
        if settings.strict or settings.engine == "native":
            raise EngineError(f"{loop} was left to XLA: {outcome.reason}.")
        return compat.stock_rule(ctx, *args, **params)
    if settings.check:
        return lower_both(ctx, loop, outcome, args, params)
    return outcome.lower(ctx, *args)


def _outcome(ctx: Any, loop: Loop) -> Native | Left:
    """What becomes of a loop; a failure inside the engine is XLA's turn."""
    if reason := _outside(ctx, loop):
        return Left(reason)
    platform = compat.platform(ctx)
    assert platform is not None
    try:
        return compile_loop(loop, platform)
    except Exception as error:
        reason = f"the engine failed inside ({type(error).__name__}: {error})"
        warnings.warn(f"onescan left {loop} to XLA: {reason}", EngineWarning, 2)
        return Left(reason)


def _outside(ctx: Any, loop: Loop) -> str | None:
    """Why the surrounding program keeps a loop from us, if it does."""
    if compat.platform(ctx) is None:
        return "the program is compiled for several platforms"
    if compat.is_export(ctx):
        return "the program is exported, and must run where onescan is not"
    if loop.body.effects:
        return f"the body has side effects ({', '.join(map(str, loop.body.effects))})"
    if (devices := compat.num_devices(ctx)) > 1:
        return f"the program is sharded over {devices} devices"
    return None


def register() -> None:
    """Put the rule in place; called once, when onescan is imported."""
    compat.register_scan_rule(lower_scan)
