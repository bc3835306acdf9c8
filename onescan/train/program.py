"""The compiled programs of a chunk, the state donated.

A chunk is one loop over its steps. Where the steps have convolutions, on a CPU, it is
one call after the other of a compiled step: `onescan.train.convolutions` says why.

`until` is asked after every step, inside the program. From the step on at which it says
yes, the state stays as it is, so where a run ends does not depend on its chunks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from onescan.api.scan import scan
from onescan.train.convolutions import has_convolutions
from onescan.train.sources import Source
from onescan.train.state import Divided, stepper

Until = Callable[[Any, Any], Any]

#: runs whose programs are kept, for others with the same functions
RECENT = 16


class Progress(NamedTuple):
    """A chunk between two steps that are called one after the other."""

    arrays: list[Any]
    metrics: Any  # of all steps of the chunk, zeros where not taken yet
    ended: Any  # None where nobody asks
    done: Any  # steps, those after the end too
    taken: Any


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
        self._user_step = step
        self._division = tried.division
        self._metrics = tried.metrics
        self._source = source
        self._until = until
        self._one_by_one = is_one_by_one(tried)
        self._loop = jax.jit(
            self._run, static_argnames="length", donate_argnames="arrays"
        )
        self._begun = jax.jit(self._begin, static_argnames="length")
        self._stepped = jax.jit(self._one_step, donate_argnames="now")

    def __call__(
        self, arrays: list[Any], first: int, data: Any, length: int
    ) -> tuple[list[Any], Any, Any, Any]:
        if not self._one_by_one:
            return self._loop(arrays, jnp.int32(first), data, length=length)
        xs, rest = self._begun(jnp.int32(first), data, length=length)
        now = Progress(arrays, *rest)
        for _ in range(length):
            now = self._stepped(now, xs, data)
        ended = False if now.ended is None else now.ended
        return now.arrays, now.metrics, now.taken, ended

    def _run(self, arrays: Any, first: Any, data: Any, *, length: int) -> Any:
        xs = self._source.xs(data, first, length)

        def body(carry: Any, x: Any) -> tuple[Any, Any]:
            arrays, ended = carry
            new, metrics, after = self._stepping(arrays, ended, data, x)
            return (new, after), (metrics, ended)

        # the report shows the name and line of what is wrapped
        vars(body)["__wrapped__"] = self._user_step
        ended = self._not_ended()
        (arrays, ended), (metrics, skipped) = scan(body, (arrays, ended), xs, length)
        if skipped is None:
            return arrays, metrics, length, False
        return arrays, metrics, length - jnp.sum(skipped), ended

    def _begin(self, first: Any, data: Any, *, length: int) -> Any:
        """What the steps of a chunk run over, and all but the arrays of `Progress`."""
        metrics = jax.tree.map(
            lambda kind: jnp.zeros((length, *kind.shape), kind.dtype), self._metrics
        )
        rest = metrics, self._not_ended(), jnp.int32(0), jnp.int32(0)
        return self._source.xs(data, first, length), rest

    def _one_step(self, now: Progress, xs: Any, data: Any) -> Progress:
        x = jax.tree.map(lambda leaf: leaf[now.done], xs)
        new, metrics, ended = self._stepping(now.arrays, now.ended, data, x)
        put = lambda all_steps, metric: all_steps.at[now.done].set(metric)
        taken = 1 if now.ended is None else 1 - now.ended.astype(jnp.int32)
        return Progress(
            new,
            jax.tree.map(put, now.metrics, metrics),
            ended,
            now.done + 1,
            now.taken + taken,
        )

    def _stepping(self, arrays: Any, ended: Any, data: Any, x: Any) -> Any:
        """One step, unless the run has ended: arrays, metrics, whether it ends here."""
        new, metrics = self._step(arrays, self._source.batch(data, x))
        if self._until is None:
            return new, metrics, None
        ends = self._until(self._division.join(new), metrics)
        new = [jnp.where(ended, a, b) for a, b in zip(arrays, new, strict=True)]
        return new, metrics, ended | ends

    def _not_ended(self) -> Any:
        return None if self._until is None else jnp.bool_(False)


def is_one_by_one(tried: Divided) -> bool:
    """Whether the steps of a chunk are calls of a compiled step."""
    return jax.default_backend() == "cpu" and has_convolutions(tried.jaxpr)


def programs(
    step: Callable[..., Any], tried: Divided, source: Source, until: Until | None
) -> Programs:
    """The programs of a run: those of an earlier one with the same functions, if any.

    As with `jax.jit`, a function that is the same object is taken to be the same.
    """
    bare = source.without_data()
    division = tried.division
    key: Hashable = (
        *(step, until, division, tuple(map(type, division.fixed))),
        *(is_one_by_one(tried), type(source), tuple(source.description().items())),
    )
    try:
        known = _recent.pop(key, None)
    except TypeError:  # something in the state has no hash
        return Programs(step, tried, bare, until)
    _recent[key] = known or Programs(step, tried, bare, until)
    while len(_recent) > RECENT:
        _recent.popitem(last=False)
    return _recent[key]


_recent: OrderedDict[Hashable, Programs] = OrderedDict()
