"""What it is worth in time: a loop run in several ways on this machine.

By XLA as it is, as one kernel with all its work inside, and as one kernel with the work
around it that the passes took out, which is how it runs.  In turns, the best of each,
on the user's own arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from onescan import switches
from onescan.explain.decide import Decision, meant
from onescan.loop import Loop
from onescan.lowering.hook import our_settings
from onescan.lowering.outcome import Seen
from onescan.passes import surround
from onescan.passes.split import run

#: seconds that the rounds of all ways may take together, and rounds at least
ENOUGH, ROUNDS = 1.0, 3

Way = Callable[..., Any]


@dataclass(frozen=True)
class Times:
    """Seconds for each step of a loop, calls included, by how it is run."""

    by_way: tuple[tuple[str, float], ...]

    @property
    def gain(self) -> float:
        """How many times faster it runs than by XLA."""
        return self.by_way[0][1] / self.by_way[-1][1]


def measured(decision: Decision, args: Sequence[Any]) -> Times:
    """Run a loop on its flat arguments: constants, carry and xs."""
    # the passes' own loops are for the engine too
    with our_settings(decision.loop), switches.using(engine="auto"):
        given = [_plain(arg) for arg in args]
        best: dict[str, float] = {}
        ready = {name: jax.jit(way) for name, way in _ways(decision).items()}
        for way in ready.values():
            jax.block_until_ready(way(*given))
        begin = time.perf_counter()
        rounds = 0
        while rounds < ROUNDS or time.perf_counter() - begin < ENOUGH:
            for name, way in ready.items():
                start = time.perf_counter()
                jax.block_until_ready(way(*given))
                taken = time.perf_counter() - start
                best[name] = min(taken, best.get(name, taken))
            rounds += 1
    steps = max(1, decision.loop.length)
    return Times(tuple((name, seconds / steps) for name, seconds in best.items()))


def _ways(decision: Decision) -> dict[str, Way]:
    loop = decision.loop
    ways = {"by XLA": _bound(loop, surround.stock)}
    inside = _native(decision) if decision.reason is None else surround.stock
    if decision.plan is not None and decision.splits:
        ways["as one kernel"] = _bound(loop, inside)
    if decision.splits or decision.plan is not None:
        splits, core = list(decision.splits), decision.core
        middle = _bound(core, inside) if core.body.out_avals else lambda *args: []
        ways["as it runs"] = lambda *args: run(splits, middle, list(args))
    return ways


def _native(decision: Decision) -> Callable[[Loop], Any]:
    from onescan.lowering import pipeline  # which needs llvmlite

    target = meant(decision.platform)

    def engine(loop: Loop) -> Any:
        settings = replace(switches.current(), tune=False)
        return pipeline.called(pipeline.planned(loop, target, settings), target, Seen())

    return engine


def _bound(loop: Loop, engine: Callable[[Loop], Any]) -> Way:
    results = tuple(surround.results_of(loop))
    return lambda *args: surround.loop_p.bind(
        *args, lower=engine(loop), results=results
    )


def _plain(arg: Any) -> Any:
    array = jnp.asarray(arg)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(array)
    return array
