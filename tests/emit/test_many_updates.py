"""Scatters of many updates, one by one, of which some lie outside of the array."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree
from jax import lax
from kernels import kernel_of, loop_in, plan_of

from onescan.emit.indexing import MANY

COUNT = 100
#: what an update does to a number
UPDATES = {
    "set": lambda at, x: at.set(x, mode="drop"),
    "add": lambda at, x: at.add(x, mode="drop"),
    "subtract": lambda at, x: at.subtract(x),
    "multiply": lambda at, x: at.multiply(x),
    "smallest": lambda at, x: at.min(x),
    "largest": lambda at, x: at.max(x),
    "held": lambda at, x: at.add(x, mode="clip"),
    "promised": lambda at, x: at.add(x, mode="promise_in_bounds"),
}


def updated(name: str, dtype: str, places: Any) -> None:
    def step(c: Any, i: Any) -> Any:
        made = UPDATES[name](c.at[i], numbers)
        return made, c[::-1]

    numbers = jnp.asarray(np.arange(COUNT) % 5 + 1, dtype)
    start = jnp.asarray(np.arange(37) % 3, dtype)
    assert_engines_agree(lambda c, i: lax.scan(step, c, i), start, places)


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "int8"])
def test_places_in_and_outside(name: str, dtype: str) -> None:
    """Before, behind, and far from the array, and several times in it."""
    random = np.random.default_rng(0)
    places = random.integers(-80, 80, (6, COUNT))
    places[2, ::7] = np.iinfo(np.int32).max
    places[3, ::7] = np.iinfo(np.int32).min
    if name == "promised":
        places = np.clip(places, 0, 36)
    if name == "set":  # else the order would be XLA's
        places = np.array([random.permutation(200)[:COUNT] - 70 for _ in places])
    updated(name, dtype, jnp.asarray(places, jnp.int32))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64"])
def test_types_of_places(kind: str) -> None:
    with jax.enable_x64(True):
        ends = np.iinfo(kind)
        random = np.random.default_rng(0)
        places = random.integers(0, 60, (4, COUNT)).astype(kind)
        places[1, ::3], places[2, ::3] = ends.max, ends.min
        updated("add", "float32", jnp.asarray(places))


def test_two_numbers_for_each_place() -> None:
    def step(c: Any, i: Any) -> Any:
        return c.at[i[0], i[1]].add(1, mode="drop"), None

    places = jnp.asarray(np.random.default_rng(0).integers(-9, 20, (5, 2, COUNT)))
    grid = jnp.zeros((11, 13), jnp.int32)
    assert_engines_agree(lambda c, i: lax.scan(step, c, i), grid, places)


def test_those_outside_are_left_out_by_branches() -> None:
    """A selection has each update wait for the number that it may not change."""

    def text(count: int) -> str:
        step = lambda c, i: (c.at[i].add(1.0), c.sum())
        loop = lambda c, i: lax.scan(step, c, i)
        made = loop_in(loop, jnp.zeros(500), jnp.zeros((9, count), jnp.int32))
        return str(kernel_of(plan_of(made)).module)

    assert "!prof" in text(MANY)
    assert "!prof" not in text(MANY // 2)
