"""Bodies in which the positions of a grid look at their neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Body = Callable[[Any], Any]


def grid(*shape: int, seed: int = 0, dtype: Any = np.float32) -> jax.Array:
    values = np.random.default_rng(seed).uniform(0, 1, shape)
    return jnp.asarray(values * (50 if dtype == np.int32 else 1), dtype)


def roll(x: Any, by: int, axis: int) -> jax.Array:
    return jnp.roll(x, by, axis)


def neighbours(x: Any) -> Any:
    return sum(roll(x, way, axis) for axis in range(x.ndim) for way in (1, -1))


def windows(x: Any, mode: str) -> Any:
    wide = jnp.pad(x, 2, mode=mode)
    n, m = x.shape
    return wide[1 : n + 1, 3 : m + 3] + wide[4:, 2 : m + 2] - wide[2 : n + 2, :m]


def shifted(x: Any, axis: int) -> Any:
    first = jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))
    rest = lax.slice_in_dim(x, 0, x.shape[axis] - 1, axis=axis)
    return jnp.concatenate([first, rest], axis)


def convolved(x: Any) -> Any:
    weights = jnp.arange(9, dtype=x.dtype).reshape(1, 1, 3, 3) / 40
    return lax.conv_general_dilated(x[None, None], weights, (1, 1), "SAME")[0, 0]


def inside(x: Any) -> Any:
    return x.at[1:-1, 1:-1].set((x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, :-2]) / 3)


def borders(x: Any) -> Any:
    return (x + roll(x, 1, 1)).at[0].set(1).at[:, -1].set(x[:, 2]).at[3:5, 7].set(0.5)


def turned(x: Any) -> Any:
    return jnp.flip(roll(x, 1, 1), 1) - jnp.flip(roll(x, 1, 0), 0)


def twice(x: Any) -> Any:
    y = jnp.tanh(x)  # dear enough to be written down
    return neighbours(y) + roll(neighbours(y), 1, 1) - 4 * jnp.exp(y)


BODIES: dict[str, Body] = {
    "roll": lambda x: roll(x, 1, 0) + roll(x, -1, 1),
    "rolls": neighbours,
    "far": lambda x: roll(x, 17, 1) - roll(x, -19, 0) + roll(x, 5, 1),
    "diagonal": lambda x: jnp.roll(x, (1, -2), (0, 1)),
    "wrapped": lambda x: windows(x, "wrap"),
    "edges": lambda x: windows(x, "edge"),
    "mirrored": lambda x: windows(x, "reflect"),
    "zeros": lambda x: windows(x, "constant"),
    "shifted": lambda x: shifted(x, 0) - shifted(x, 1),
    "convolved": convolved,
    "inside": inside,
    "borders": borders,
    "gradient": lambda x: jnp.gradient(x)[0] - jnp.gradient(x)[1],
    "turned": turned,
    "twice": twice,
    "mean": lambda x: neighbours(x) - jnp.mean(roll(x, 1, 0)) + x.sum(1)[:, None] / 50,
    "gradient of": lambda x: jax.grad(lambda y: (inside(y) * neighbours(y)).sum())(x),
    "where": lambda x: jnp.where(roll(x, 1, 1) > x, x, roll(x, 1, 0)),
    "transposed": lambda x: roll(x, 3, 0)[:34, :34].T.sum() + roll(x, 3, 1),
}


def gray_scott(state: Any, _: Any) -> Any:
    u, v = state
    reaction = u * v * v
    u = u + 0.16 * (neighbours(u) - 4 * u) - reaction + 0.035 * (1 - u)
    v = v + 0.08 * (neighbours(v) - 4 * v) + reaction - 0.1 * v
    return (u, v), None
