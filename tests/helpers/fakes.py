"""A native engine that is XLA in disguise, to test everything around an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import mlir

from onescan import compat, switches
from onescan.loop import Loop
from onescan.lowering import hook
from onescan.lowering.outcome import Left, Native
from onescan.switches import Settings

Change = Callable[[list[Any]], Sequence[Any]]


def use_engine(monkeypatch: Any, change: Change = list) -> list[Loop]:
    """Take every loop, and pass its results through `change`; the loops taken."""
    taken: list[Loop] = []

    def compile_loop(loop: Loop, platform: str, settings: Settings) -> Native:
        taken.append(loop)
        return Native(lambda ctx, *args: _lower(loop, change, ctx, args), ("disguise",))

    monkeypatch.setattr(hook, "compile_loop", compile_loop)
    return taken


def use_leaving_engine(monkeypatch: Any, reason: str) -> None:
    """An engine that leaves every loop to XLA."""
    monkeypatch.setattr(hook, "compile_loop", lambda *_: Left(reason))


def use_broken_engine(monkeypatch: Any, error: Exception) -> None:
    """An engine that fails inside on every loop."""

    def compile_loop(loop: Loop, platform: str, settings: Settings) -> Native:
        raise error

    monkeypatch.setattr(hook, "compile_loop", compile_loop)


def _lower(loop: Loop, change: Change, ctx: Any, args: Sequence[Any]) -> Sequence[Any]:
    def run(*values: Any) -> Sequence[Any]:
        split = loop.num_consts + loop.num_carry
        consts, init = values[: loop.num_consts], values[loop.num_consts : split]

        def body(carry: Any, x: Any) -> tuple[Any, Any]:
            outs = jaxpr_as_fun(loop.body)(*consts, *carry, *x)
            return tuple(outs[: loop.num_carry]), outs[loop.num_carry :]

        carry, ys = lax.scan(body, init, values[split:], loop.length, loop.reverse)
        return change([*carry, *ys])

    with switches.using(engine="xla"):
        return mlir.lower_fun(run)(compat.with_fresh_caches(ctx), *args)
