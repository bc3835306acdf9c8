"""Values whose rows end anywhere in a vector: reshaped, tiled and repeated ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree
from kernels import loop_in, plan_of
from sampling import pairs

import onescan
from onescan.targets.cpu.build import build

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "tiled": lambda c: jnp.tile(c.reshape(-1)[:77], 20)[: c.size],
    "tiled twice": lambda c: jnp.tile(c[:2], (9, 3)),
    "tiled rows": lambda c: jnp.tile(c, (1, 2)),
    "tiled columns": lambda c: jnp.tile(c, (2, 1)),
    "one of a tiled value": lambda c: jnp.tile(c.reshape(-1), 3)[c.size + 1],
    "a row": lambda c: (c + c[:1]).reshape(-1),
    "other rows": lambda c: (c + c[:1]).reshape(c.shape[::-1]),
    "reversed rows": lambda c: c[::-1].reshape(-1)[::-1],
    "a few of a row": lambda c: (c + c[:1]).reshape(-1)[3:6],
    "repeated": lambda c: jnp.repeat(c.reshape(-1), 2)[: c.size],
    "repeated elsewhere": lambda c: jnp.repeat(c.reshape(-1), 4)[5 : c.size],
    "repeated 3 times": lambda c: jnp.repeat(c.reshape(-1), 3),
    "repeated 8 times": lambda c: jnp.repeat(c[0], 8),
    "repeated in rows": lambda c: jnp.repeat(c, 2, axis=1),
    "repeated rows": lambda c: jnp.repeat(c, 2, axis=0),
    "side by side": lambda c: jnp.stack([c, c + c[:1]], -1).reshape(len(c), -1),
    "enlarged": lambda c: jnp.repeat(jnp.repeat(c, 2, 0), 2, 1),
}


def loop(f: Callable[[Any], Any]) -> Callable[..., Any]:
    """Nothing is independent, so vectors lie along the values of a step."""

    def step(c: Any, x: Any) -> Any:
        y = f(c)
        c = jnp.roll(c, 1, 0) + x + jnp.ravel(y)[-1]
        return c % 7 if jnp.issubdtype(c.dtype, jnp.integer) else c * 0.25, y

    return lambda c, xs: onescan.scan(step, c, xs)


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    pairs(
        list(FUNCTIONS),
        [(20, 33), (7, 40), (16, 16), (3, 9)],
        [np.float32, np.int8, np.float16, np.int32],
    ),
)
def test_as_stock(name: str, shape: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    c, xs = (rng.integers(0, 9, s).astype(dtype) for s in (shape, (5, *shape)))
    assert_engines_agree(loop(FUNCTIONS[name]), c, xs)


@pytest.mark.parametrize(
    "name", ["tiled", "reversed rows", "repeated", "repeated 8 times", "side by side"]
)
def test_no_position_is_divided(name: str) -> None:
    """What lies across rows is written down, and short rows are put together."""
    c, xs = np.zeros((20, 33), np.float32), np.zeros((5, 20, 33), np.float32)
    module, _ = build(plan_of(loop_in(loop(FUNCTIONS[name]), c, xs)))
    assert "urem" not in str(module)


@pytest.mark.parametrize("shape", [(1, 40), (40, 1), (1, 5, 20)])
def test_dimensions_of_one_come_and_go(shape: Any) -> None:
    def step(c: Any, x: Any) -> Any:
        flat = jnp.roll(c, 1).reshape(-1)
        y = jnp.concatenate([flat, flat])[: c.size].reshape(c.shape + (1,))
        return c * 0.5 + x + y[..., 0], (flat[None, 1:], y.reshape(1, -1, 1))

    f = lambda c, xs: onescan.scan(step, c, xs)
    rng = np.random.default_rng(0)
    args = (rng.normal(size=s).astype(np.float32) for s in (shape, (5, *shape)))
    assert_engines_agree(f, *args)


def test_one_element_needs_no_copies() -> None:
    f = loop(FUNCTIONS["one of a tiled value"])
    c, xs = np.zeros((20, 33), np.float32), np.zeros((5, 20, 33), np.float32)
    module, _ = build(plan_of(loop_in(f, c, xs)))
    assert f"{20 * 33 * 3} x float" not in str(module)
    assert_engines_agree(jax.jit(f), c, xs)
