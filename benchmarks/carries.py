"""Carries that are more than numbers: a random key, and a buffer written in place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from case import Case, normal

WALK = 5000
STEPS = 10_000
SLOTS = 4096


def random_walk(scan, unroll, key, x0):
    """A Gaussian walk that splits its key each step."""

    def step(carry, _):
        key, x = carry
        key, use = jax.random.split(key)
        x = x + 0.1 * jax.random.normal(use)
        return (key, x), x

    _, path = scan(step, (key, x0), None, length=WALK, unroll=unroll)
    return path


def echo_indexed(scan, unroll, buffer, signal):
    """A signal plus its own echo, out of a ring buffer written by `.at[i].set`."""

    def step(carry, x):
        i, buffer = carry
        y = x + 0.5 * buffer[i]
        return ((i + 1) % SLOTS, buffer.at[i].set(y)), y

    (_, buffer), ys = scan(step, (0, buffer), signal, unroll=unroll)
    return buffer, ys


def echo_sliced(scan, unroll, buffer, signal):
    """The same by `dynamic_slice` and `dynamic_update_slice`."""

    def step(carry, x):
        i, buffer = carry
        (old,) = jax.lax.dynamic_slice(buffer, (i,), (1,))
        y = x + 0.5 * old
        buffer = jax.lax.dynamic_update_slice(buffer, y[None], (i,))
        return ((i + 1) % SLOTS, buffer), y

    (_, buffer), ys = scan(step, (0, buffer), signal, unroll=unroll)
    return buffer, ys


def _echo_case(kind: str, fn) -> Case:
    return Case(
        name=f"ring/{kind}",
        steps=STEPS,
        build=lambda: (fn, (normal(0, SLOTS), normal(1, STEPS))),
        ops=4,
        bytes=16,
        kernel="echo",
        sizes=(STEPS, SLOTS),
    )


CASES = [
    Case(
        name="walk",
        steps=WALK,
        build=lambda: (random_walk, (jax.random.key(0), jnp.float32(0.0))),
        ops=3 * 80 + 40,  # three random words, and the normal out of one of them
        bytes=4,
    ),
    _echo_case("set", echo_indexed),
    _echo_case("slice", echo_sliced),
]
