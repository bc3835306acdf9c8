"""A progress bar, as seen from inside the program: calls at its start, end and between.

Each call is given a number that the loop has just computed, so that none is made before
the steps it tells of are done, and what the call before gave, so that they keep their
order.  That is the number of steps after which to call again: a call takes as long as
thousands of steps of a small loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onescan.long import bars
from onescan.long.calls import call
from onescan.long.options import Options
from onescan.long.step import State, on_all_lanes
from onescan.naming import function_name


class Ticks:
    """The calls of one loop."""

    def __init__(self, options: Options, reverse: bool) -> None:
        name, total = function_name(options.f).name, options.steps
        self.loop = bars.Loop(name, total, options.progress)
        self.metrics: Callable[..., dict[str, Any]] | None = options.metrics
        self.last = 0 if reverse else -1

    def start(self, carry: Any) -> Any:
        """Open the bar; the number of this run."""
        return call(lambda _: bars.start(self.loop), _one_number(carry))

    def tick(self, state: State, ys: Any) -> State:
        """Tell how many steps are done, if it is time to; when is the next time?"""
        early = (state.count < state.due) & (state.count < self.loop.total)
        due = lax.cond(on_all_lanes(early), lambda: state.due, self._tell(state, ys))
        return state._replace(due=due)

    def _tell(self, state: State, ys: Any) -> Callable[[], Any]:
        names: list[str] = []

        def tell(run: Any, count: Any, _: Any, *values: Any) -> int:
            means = {k: float(np.mean(v)) for k, v in zip(names, values, strict=True)}
            return bars.tick(int(run.flat[0]), int(count.max()), means)

        def branch() -> Any:
            y = jax.tree.map(lambda y: y[self.last], ys)
            shown = {} if self.metrics is None else self.metrics(state.carry, y)
            names[:] = shown
            known = _one_number(state.carry)
            return call(tell, state.run, state.count, known, *shown.values())

        return branch

    def end(self, state: State) -> None:
        """Close the bar."""

        def tell(run: Any, count: Any, *_: Any) -> None:
            bars.end(int(run.flat[0]), int(count.max()))

        call(tell, state.run, state.count, state.due, _one_number(state.carry))


def _one_number(tree: Any) -> Any:
    """Any number of a tree, which is known only when the tree is."""
    for leaf in jax.tree.leaves(tree):
        if leaf.size and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            return leaf[(0,) * leaf.ndim]
    return jnp.int32(0)
