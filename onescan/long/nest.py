"""Loops inside loops: the steps of a loop, cut as a schedule says.

`Nest.run` is `scan` in every result. Of the loops that it makes, only the innermost are
marked as ours: they become kernels, and XLA runs what is around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, isqrt, prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from onescan import compat
from onescan.long.schedule import Schedule

Run = Callable[[Any, Any, int], tuple[Any, Any]]  # state, xs, steps -> state, ys


@dataclass(frozen=True)
class Nest:
    """How the steps are run.

    `steps` runs some steps one after the other, and `piece` is put around at most
    `chunk` of them.
    """

    steps: Run
    piece: Callable[[Run, Any, Any, int], tuple[Any, Any]] | None
    chunk: int
    reverse: bool

    def run(self, schedule: Schedule, state: Any, xs: Any) -> tuple[Any, Any]:
        """All parts of a schedule, in the order in which the loop runs."""
        lengths = [part.steps for part in schedule]
        cuts = self._cut(xs, lengths)
        results = []
        for part, piece in zip(schedule, cuts, strict=True):
            state, ys = self._part(part.sizes, True, state, piece)
            results.append(ys)
        return state, self._joined(results)

    def _part(
        self, sizes: Sequence[int], again: bool, state: Any, xs: Any
    ) -> tuple[Any, Any]:
        """Steps cut into segments; `again` are those that a gradient runs again."""
        steps = prod(sizes)
        if self.piece is None or steps <= self.chunk:
            run = self._inner(sizes, again)
            return (
                self.piece(run, state, xs, steps)
                if self.piece
                else run(state, xs, steps)
            )
        if len(sizes) > 1:
            return self._outer(
                sizes[0],
                again,
                state,
                xs,
                steps,
                lambda s, x: self._part(sizes[1:], again, s, x),
            )
        count = _pieces(steps, self.chunk)
        length = steps // count
        rest = steps - count * length
        cuts = self._cut(xs, [count * length, rest] if rest else [steps])
        state, ys = self._outer(
            count,
            False,
            state,
            cuts[0],
            count * length,
            lambda s, x: self._part([length], False, s, x),
        )
        if not rest:
            return state, ys
        state, last = self._part([rest], False, state, cuts[1])
        return state, self._joined([ys, last])

    def _inner(self, sizes: Sequence[int], again: bool) -> Run:
        """Segments that nothing is put around any more."""
        if len(sizes) == 1:
            return self.steps
        inner = self._inner(sizes[1:], again)
        length = prod(sizes[1:])

        def run(state: Any, xs: Any, steps: int) -> tuple[Any, Any]:
            segment = lambda s, x: inner(s, x, length)
            return self._outer(sizes[0], again, state, xs, steps, segment)

        return run

    def _outer(
        self,
        count: int,
        again: bool,
        state: Any,
        xs: Any,
        steps: int,
        segment: Callable[[Any, Any], tuple[Any, Any]],
    ) -> tuple[Any, Any]:
        """A loop over `count` segments of equal length."""
        if again:  # within a loop nothing can be merged with what is run again
            segment = jax.checkpoint(segment, prevent_cse=count == 1)

        def body(state: Any, x: Any) -> tuple[Any, Any]:
            with compat.unmarked():
                return segment(state, x)

        each = (count, steps // count)
        xs = jax.tree.map(lambda x: jnp.reshape(x, (*each, *x.shape[1:])), xs)
        with compat.left():
            state, ys = lax.scan(body, state, xs, count, self.reverse)
        return state, jax.tree.map(lambda y: jnp.reshape(y, (steps, *y.shape[2:])), ys)

    def _cut(self, xs: Any, lengths: Sequence[int]) -> list[Any]:
        """`xs` in pieces, in the order in which they are run."""
        if len(lengths) == 1:
            return [xs]
        total, ends = sum(lengths), list(accumulate(lengths))
        spans = [(end - n, end) for n, end in zip(lengths, ends, strict=True)]
        if self.reverse:
            spans = [(total - stop, total - start) for start, stop in spans]
        return [jax.tree.map(lambda x: x[a:b], xs) for a, b in spans]

    def _joined(self, pieces: Sequence[Any]) -> Any:
        if len(pieces) == 1:
            return pieces[0]
        pieces = pieces[::-1] if self.reverse else pieces
        return jax.tree.map(lambda *y: jnp.concatenate(y), *pieces)


def _pieces(steps: int, most: int) -> int:
    """How many pieces of at most `most` steps; equal ones where that is possible."""
    fewest = ceil(steps / most)
    for count in range(fewest, min(2 * fewest, fewest + isqrt(steps)) + 1):
        if steps % count == 0:
            return count
    return fewest
