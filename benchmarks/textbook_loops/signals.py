"""Signals, money and chance."""

from __future__ import annotations

import jax.numpy as jnp
from jax import random

from textbook_loops.parts import INDEX, Loop, keys, numbers, scalars


def average(c, x):
    c = 0.9 * c + 0.1 * x
    return c, c


def biquad(s, x):
    a, b = s
    y = 0.2 * x + a
    return (0.3 * x - 0.1 * y + b, 0.1 * x - 0.05 * y), y


def controller(s, wanted):
    x, total, before = s
    error = wanted - x
    total = total + error * 0.01
    push = 2 * error + 0.5 * total + 0.1 * (error - before) / 0.01
    return (x + 0.01 * (jnp.clip(push, -5, 5) - x), total, error), x


def ring(s, x):
    buffer, i = s
    buffer = buffer.at[i % 16].set(x)
    return (buffer, i + 1), buffer.mean()


def shifted(s, x):
    s = jnp.concatenate([s[1:], x[None]])
    return s, s @ TAPS


def histogram(h, x):
    i = jnp.clip((x * 10 + 50).astype(jnp.int32), 0, 99)
    return h.at[i].add(1), i


def drawdown(s, x):
    total, most, fallen = s
    total = total + x
    return (total, jnp.maximum(most, total), jnp.maximum(fallen, most - total)), fallen


def garch(s, e):
    last, v = s
    v = 0.1 + 0.1 * last**2 * v + 0.8 * v
    return (e, v), jnp.sqrt(v) * e


def prices(s, key):
    s = s * jnp.exp(-0.0005 + 0.03 * random.normal(key, s.shape))
    return s, s.mean()


def prices_with_key(s, _):
    key, x = s
    key, now = random.split(key)
    x = x * jnp.exp(-0.0005 + 0.03 * random.normal(now, x.shape))
    return (key, x), x.max()


def metropolis(s, key):
    x, log_p = s
    move, accept = random.split(key)
    new = x + 0.5 * random.normal(move, x.shape)
    log_q = -0.5 * (new**2).sum()
    taken = jnp.log(random.uniform(accept)) < log_q - log_p
    x = jnp.where(taken, new, x)
    return (x, jnp.where(taken, log_q, log_p)), x


TAPS = numbers(32)

LOOPS: dict[str, Loop] = {
    "average": (average, jnp.float32(0), numbers(1000), 1000),
    "average, 64": (average, numbers(64), numbers(1000, 64), 1000),
    "biquad": (biquad, scalars(2), numbers(1000), 1000),
    "biquad, 8": (biquad, (numbers(8), numbers(8)), numbers(1000, 8), 1000),
    "controller": (controller, scalars(3), numbers(1000), 1000),
    "ring buffer": (ring, (jnp.zeros(16), INDEX), numbers(1000), 1000),
    "filter of 32 taps": (shifted, jnp.zeros(32), numbers(1000), 1000),
    "histogram": (histogram, jnp.zeros(100), numbers(1000), 1000),
    "drawdown": (drawdown, scalars(3), numbers(1000), 1000),
    "GARCH": (garch, scalars(2, 1.0), numbers(1000), 1000),
    "prices, 1024": (prices, jnp.ones(1024), keys(250), 250),
    "prices, 16": (prices_with_key, (random.PRNGKey(0), jnp.ones(16)), None, 1000),
    "Metropolis": (metropolis, (numbers(5), jnp.float32(-1)), keys(1000), 1000),
}
