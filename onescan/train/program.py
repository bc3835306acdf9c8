"""The compiled program of a chunk: one loop over its steps, the state donated.

`until` is asked after every step, inside the loop. From the step on at which it says
yes, the state stays as it is, so where a run ends does not depend on its chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from onescan.api import scan
from onescan.train.convolutions import canonical, has_convolutions
from onescan.train.sources import Source
from onescan.train.state import Divided, stepper

Until = Callable[[Any, Any], Any]


class Programs:
    """Chunks of any length, each length compiled once.

    Called with the arrays of the state, which are given away, the number of the first
    step and the data of the chunk, a program returns the new arrays, the metrics of
    each step, how many steps were taken, and whether `until` ended the run.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        tried: Divided,
        source: Source,
        until: Until | None,
    ) -> None:
        self._step = stepper(step, tried.division)
        if jax.default_backend() == "cpu" and has_convolutions(tried.jaxpr):
            self._step = canonical(self._step)
        self._user_step = step
        self._division = tried.division
        self._source = source
        self._until = until
        self._compiled = jax.jit(
            self._run, static_argnames="length", donate_argnames="arrays"
        )

    def __call__(
        self, arrays: list[Any], first: int, data: Any, length: int
    ) -> tuple[list[Any], Any, Any, Any]:
        return self._compiled(arrays, jnp.int32(first), data, length=length)

    def _run(self, arrays: Any, first: Any, data: Any, *, length: int) -> Any:
        xs = self._source.xs(data, first, length)

        def body(carry: Any, x: Any) -> tuple[Any, Any]:
            arrays, ended = carry
            new, metrics = self._step(arrays, self._source.batch(data, x))
            if self._until is None:
                return (new, None), (metrics, None)
            ends = self._until(self._division.join(new), metrics)
            new = [jnp.where(ended, a, b) for a, b in zip(arrays, new, strict=True)]
            return (new, ended | ends), (metrics, ended)

        # the report shows the name and line of what is wrapped
        vars(body)["__wrapped__"] = self._user_step
        ended = None if self._until is None else jnp.bool_(False)
        (arrays, ended), (metrics, skipped) = scan(body, (arrays, ended), xs, length)
        if skipped is None:
            return arrays, metrics, length, False
        return arrays, metrics, length - jnp.sum(skipped), ended
