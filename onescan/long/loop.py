"""A loop with options, as loops of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from onescan import compat
from onescan.api import plain, reference
from onescan.long import schedule as schedules
from onescan.long.chunks import chunk_length
from onescan.long.finite import Finite
from onescan.long.nest import Nest, Run
from onescan.long.options import Options
from onescan.long.residuals import nbytes, residual_bytes
from onescan.long.schedule import Schedule
from onescan.long.step import State, Types, counts_steps, is_over, typed, with_options
from onescan.long.ticks import Ticks

Function = Callable[[Any, Any], tuple[Any, Any]]


def scan(
    f: Function,
    init: Any,
    xs: Any,
    steps: int,
    reverse: bool,
    unroll: int | bool,
    options: Options,
) -> tuple[Any, ...]:
    """`onescan.scan` with options, its arguments checked."""
    types = Types.of(f, init, xs)
    init = jax.tree.map(reference.as_type, types.carry, init)
    check_results(types, options)
    if steps == 0:
        carry, ys = plain.scan(f, init, xs, steps, reverse, unroll)
        count = jnp.int32(0)
    else:
        state, ys = run(f, types, init, xs, steps, reverse, unroll, options)
        carry = jax.tree.map(reference.as_type, types.after, state.carry)
        count = state.count
        if options.check is not None:
            finite = Finite(typed(f, types), init, xs, steps, reverse, options.where)
            finite.raise_if(state.bad)
    return (carry, ys, count) if options.until is not None else (carry, ys)


def run(
    f: Function,
    types: Types,
    init: Any,
    xs: Any,
    steps: int,
    reverse: bool,
    unroll: int | bool,
    options: Options,
) -> tuple[State, Any]:
    """All steps; the state after the last, and the ys."""
    ticks = Ticks(options, reverse) if options.progress is not None else None
    state = first_state(init, options)
    if ticks is not None:
        state = state._replace(run=ticks.start(init), due=jnp.int32(0))
    watched = state.done is not None or state.bad is not None
    simple = not watched and options.where is None
    body = typed(f, types) if simple else with_options(f, types, options)

    def many(state: State, inputs: Any, count: int) -> tuple[State, Any]:
        """Steps that nothing interrupts: a loop that may become a kernel."""
        scan = one_step if count == 1 < steps else plain.scan
        if not simple:
            return scan(body, state, inputs, count, reverse, unroll)
        carry, ys = scan(body, state.carry, inputs[0], count, reverse, unroll)
        return state._replace(carry=carry), ys

    def piece(many: Run, state: State, inputs: Any, count: int) -> tuple[State, Any]:
        """Steps that are skipped where the loop is over, and told of when done."""
        over = is_over(state, options)
        if over is None:
            state, ys = many(state, inputs, count)
        else:
            state, ys = lax.cond(
                over,
                lambda state, inputs: (state, types.zero_ys(count)),
                lambda state, inputs: many(state, inputs, count),
                state,
                inputs,
            )
        if ticks is not None:
            if not counts_steps(options):
                state = state._replace(count=state.count + count)
            state = ticks.tick(state, ys)
        return state, ys

    pieces = watched or ticks is not None
    chunk = chunk_length(f, types, xs, options) if pieces else steps
    nest = Nest(many, piece if pieces else None, chunk, reverse)
    cuts = schedule_of(f, types, xs, steps, options)
    state, ys = nest.run(cuts, state, (xs, options.where))
    if ticks is not None:
        ticks.end(state)
    return state, ys


def one_step(body: Function, init: Any, xs: Any, *rest: Any) -> tuple[Any, Any]:
    """A step that was left over, which is no loop that anybody misses."""
    with compat.left():
        return lax.scan(body, init, xs, *rest)


def first_state(init: Any, options: Options) -> State:
    """The state before the first step."""
    counted = counts_steps(options) or options.progress is not None
    return State(
        carry=init,
        count=jnp.int32(0) if counted else None,
        done=jnp.array(False) if options.until is not None else None,
        bad=jnp.int32(-1) if options.check is not None else None,
    )


def check_results(types: Types, options: Options) -> None:
    """Look at what the user's functions of the carry return."""
    if options.until is not None:
        options.wants_one_bool(jax.eval_shape(options.until, types.carry))
    if options.metrics is not None:
        options.wants_numbers(jax.eval_shape(options.metrics, types.carry, types.y))


def schedule_of(
    f: Function, types: Types, xs: Any, steps: int, options: Options
) -> Schedule:
    """How the loop is cut, as `checkpoint` says."""
    given = options.checkpoint
    if given is None:
        return schedules.plain(steps)
    if given == "sqrt":
        return schedules.square_root(steps)
    if given == "log":
        return schedules.logarithmic(steps)
    budget = options.budget
    if budget is None:
        return schedules.segments(steps, int(given))
    carry, step = nbytes(types.carry), residual_bytes(f, types.carry, xs)
    found = schedules.within(steps, budget, carry, step)
    return found or options.fits_nowhere(schedules.least(steps, carry, step))
