"""One step with options: the state that it carries, and what surrounds the function.

Only what was asked for is there: a field of the state that no option needs is None,
which to JAX is nothing at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from onescan.api import reference
from onescan.long.options import Options


class State(NamedTuple):
    """What goes from step to step."""

    carry: Any
    count: Any = None  # steps taken
    done: Any = None  # whether `until` was true
    bad: Any = None  # the first step that was not finite, -1 if none
    run: Any = None  # the number of this run's progress bar
    due: Any = None  # the steps after which it is told again


@dataclass(frozen=True)
class Types:
    """The types of a carry in every step, of the carry that comes out, and of a y."""

    carry: Any
    after: Any
    y: Any

    @classmethod
    def of(cls, f: Callable[..., Any], init: Any, xs: Any) -> Types:
        x_types = jax.tree.map(reference.type_of_entry, xs)
        carry, (after, y) = reference.types_of(f, init, x_types)
        return cls(carry, after, y)

    def zero_ys(self, steps: int | None = None) -> Any:
        """A y of zeros, or those of so many steps."""
        leading = () if steps is None else (steps,)
        return jax.tree.map(lambda kind: _zeros(kind, leading), self.y)


def _zeros(kind: Any, leading: tuple[int, ...]) -> Any:
    shape = (*leading, *kind.shape)
    if jnp.issubdtype(kind.dtype, jax.dtypes.prng_key):
        bits = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
        data = jnp.zeros((*shape, *bits.shape), bits.dtype)
        return jax.random.wrap_key_data(data)
    return reference.as_type(kind, jnp.zeros(shape, kind.dtype))


def typed(f: Callable[..., Any], types: Types) -> Callable[..., Any]:
    """The function with results of the types that every step has."""

    @functools.wraps(f)
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        after, y = f(carry, x)
        carry = jax.tree.map(reference.as_type, types.carry, after)
        return carry, jax.tree.map(reference.as_type, types.y, y)

    return step


def with_options(
    f: Callable[..., Any], types: Types, options: Options
) -> Callable[[State, Any], tuple[State, Any]]:
    """The body of a loop whose carry is a `State`, and whose x has the mask beside."""
    f = typed(f, types)

    def keep(carry: Any, x: Any) -> tuple[Any, Any]:
        return carry, types.zero_ys()

    @functools.wraps(f)
    def step(state: State, inputs: Any) -> tuple[State, Any]:
        x, go = inputs
        carry, count, done, bad = state[:4]
        if done is not None:
            done = done | options.until(carry)
            go = ~done if go is None else go & ~done
        if go is None:
            carry, y = f(carry, x)
        else:
            carry, y = lax.cond(go, f, keep, carry, x)
        if bad is not None:
            wrong = ~all_finite((carry, y)) & (bad < 0)
            bad = jnp.where(wrong if go is None else wrong & go, count, bad)
        if counts_steps(options):
            count = count + (1 if done is None else (~done).astype(count.dtype))
        return State(carry, count, done, bad, *state[4:]), y

    return step


def counts_steps(options: Options) -> bool:
    """Whether every step is counted; if not, only pieces of many steps are."""
    return options.until is not None or options.check is not None


def is_over(state: State, options: Options) -> Any:
    """Whether no step of this loop is wanted any more, on any lane; None if unknown."""
    over = None
    if state.done is not None:
        over = state.done | options.until(state.carry)
    if state.bad is not None:
        over = state.bad >= 0 if over is None else over | (state.bad >= 0)
    return None if over is None else on_all_lanes(over)


@custom_vmap
def on_all_lanes(over: Any) -> Any:
    """The same bool; under `jax.vmap`, whether it holds for the whole batch."""
    return over


@on_all_lanes.def_vmap
def _(size: int, batched: Any, over: Any) -> Any:
    return on_all_lanes(jnp.all(over)), False


def all_finite(tree: Any) -> Any:
    """Whether every float of a tree is a finite number."""
    leaves = [
        jnp.all(jnp.isfinite(leaf))
        for leaf in jax.tree.leaves(tree)
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    return functools.reduce(jnp.logical_and, leaves, jnp.array(True))
