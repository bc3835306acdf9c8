"""One loop with containers, and what its options mean as a plain loop."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Moving(NamedTuple):
    place: Any
    speed: Any
    count: Any


def body(carry: Moving, x: Any) -> tuple[Moving, Any]:
    force = jnp.sin(carry.place) * x["push"]
    speed = 0.9 * carry.speed + force
    after = Moving(carry.place + speed, speed, carry.count + x["n"])
    return after, {"energy": jnp.sum(speed**2), "count": carry.count}


def arguments(steps: int, seed: int = 0) -> tuple[Moving, Any]:
    rng = np.random.default_rng(seed)
    place = jnp.asarray(rng.normal(size=3), jnp.float32)
    init = Moving(place, jnp.zeros(3, jnp.float32), 0)
    xs = {
        "push": jnp.asarray(rng.normal(size=steps), jnp.float32),
        "n": jnp.asarray(rng.integers(0, 3, steps), jnp.int32),
    }
    return init, xs


def far(carry: Moving) -> Any:
    """An `until` that is true after some steps."""
    return jnp.sum(jnp.abs(carry.place)) > 4.0


one_step, is_far = jax.jit(body), jax.jit(far)


def as_plain_loop(
    init: Moving, xs: Any, reverse: bool = False, until: Any = None, where: Any = None
) -> tuple[Any, Any, int, Any]:
    """One step after the other: carry, ys, steps taken, and which steps were active."""
    steps = len(xs["push"])
    zeros = {"energy": np.float32(0), "count": np.int32(0)}
    carry, ys, taken, active = init, [zeros] * steps, 0, np.zeros(steps, bool)
    for i in reversed(range(steps)) if reverse else range(steps):
        if until is not None and is_far(carry):
            break
        taken += 1
        if where is None or where[i]:
            carry, ys[i] = one_step(carry, jax.tree.map(lambda x: np.asarray(x)[i], xs))
            active[i] = True
    stacked = jax.tree.map(lambda *y: np.stack(y), *ys) if ys else None
    return carry, stacked, taken, active


@partial(jax.jit, static_argnames="reverse")
def slopes(
    init: Moving, xs: Any, active: Any, reverse: bool = False
) -> tuple[Any, Any]:
    """The gradient of `loss`, and the derivative of the last place along ones.

    Of a loop of stock JAX in which steps that are not active are undone.
    """

    def step(carry: Moving, inputs: Any) -> tuple[Moving, Any]:
        x, go = inputs
        after, y = body(carry, x)
        keep = lambda new, old: jnp.where(go, new, old)
        return jax.tree.map(keep, after, carry), jax.tree.map(lambda y: y * go, y)

    def run(place: Any, push: Any) -> tuple[Any, Any]:
        start, inputs = init._replace(place=place), ({**xs, "push": push}, active)
        return jax.lax.scan(step, start, inputs, reverse=reverse)

    at = init.place, xs["push"]
    ones = (jnp.zeros_like(at[0]), jnp.ones_like(at[1]))
    _, along = jax.jvp(lambda *a: run(*a)[0].place, at, ones)
    return jax.grad(lambda *a: loss(*run(*a)), (0, 1))(*at), along


def loss(carry: Moving, ys: Any) -> Any:
    return jnp.sum(carry.place**2) + jnp.sum(carry.speed) + jnp.sum(ys["energy"])
