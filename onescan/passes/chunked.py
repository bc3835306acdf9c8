"""A linear recurrence solved in chunks of time, all chunks at once.

The steps of ``c' = a * c + b`` are folded into `chunks` chunks.  Each chunk starts
from zero, which makes all of them independent: one loop over the steps of a chunk,
with the chunks as lanes, gives every step's value c0 as if its chunk had started
from zero, and the factor f by which what the chunk did start from enters it.  A
short loop over the chunks then tells what each of them starts from, and
``c = f * start + c0``.  That is twice the work of the loop and a time of
``length / chunks + chunks`` steps instead of `length`.

Each step is taken by its own equations, and f is the derivative of c by the start,
carried along; an affine function has the same derivative everywhere.

The sum of the two parts is as exact as the loop itself as long as no factor is much
larger than one, and as long as both are numbers at all.  Neither is known before the
loop runs, so both are looked at then, and where they do not hold, the loop is run
step by step after all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from onescan import compat

#: factors from which rounding errors would grow beyond those of the loop
LARGEST_FACTOR = 4.0

Step = Callable[..., Any]  # from c and the rows of a step to the next c


def solve(
    step: Step,
    start: Any,
    rows: Sequence[Any],
    length: int,
    *,
    reverse: bool,
    chunks: int,
    steady: bool = False,
) -> Any:
    """The new values of c of all steps, stacked; `steady` where all a are one."""
    size = -(-length // chunks)
    folded = [_folded(row, chunks, size, reverse) for row in rows]
    zeros = jnp.zeros((chunks, *start.shape), start.dtype)
    factors = () if steady else (jnp.ones_like(zeros),)

    def one_step(state: tuple[Any, ...], row: list[Any]) -> tuple[Any, Any]:
        def new(c: Any) -> Any:
            return lax.convert_element_type(jax.vmap(step)(c, *row), c.dtype)

        value, *factor = state
        after = (new(value),) if steady else jax.jvp(new, (value,), (*factor,))
        return after, after

    def one_chunk(c: Any, chunk: tuple[Any, ...]) -> tuple[Any, Any]:
        return _joined(c, *chunk), c

    with compat.marked(inner=True):
        last, parts = lax.scan(one_step, (zeros, *factors), folded, size, reverse)
        _, starts = lax.scan(one_chunk, start, last, chunks, reverse)
    solved = _unfolded(_joined(starts, *parts), length, reverse)
    # of a part or a start that is no number, neither is the sum
    good = jnp.all(jnp.isfinite(solved))
    for factor in parts[1:]:
        good &= jnp.all(jnp.abs(factor) <= LARGEST_FACTOR)
    return lax.cond(
        good,
        lambda start, rows: solved,
        lambda start, rows: step_by_step(step, start, rows, length, reverse),
        start,
        list(rows),
    )


def step_by_step(
    step: Step, start: Any, rows: list[Any], length: int, reverse: bool
) -> Any:
    """The same in the order of the loop."""

    def one_step(c: Any, row: list[Any]) -> tuple[Any, Any]:
        new = lax.convert_element_type(step(c, *row), c.dtype)
        return new, new

    with compat.marked(inner=True):
        return lax.scan(one_step, start, rows, length, reverse)[1]


def _joined(start: Any, value: Any, factor: Any = None) -> Any:
    """What a step comes to that would be `value` if its chunk started from zero."""
    return start + value if factor is None else factor * start + value


def _folded(row: Any, chunks: int, size: int, reverse: bool) -> Any:
    """Time as (step of a chunk, chunk); what is missing at the end is repeated."""
    if missing := chunks * size - row.shape[0]:
        again = jnp.repeat(row[:1] if reverse else row[-1:], missing, axis=0)
        row = jnp.concatenate([again, row] if reverse else [row, again])
    return row.reshape(chunks, size, *row.shape[1:]).swapaxes(0, 1)


def _unfolded(rows: Any, length: int, reverse: bool) -> Any:
    size, chunks, *shape = rows.shape
    rows = rows.swapaxes(0, 1).reshape(chunks * size, *shape)
    first = chunks * size - length if reverse else 0
    return lax.slice_in_dim(rows, first, first + length)
