"""Integer division: by floats in vectors, by constants, and where it has no result."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import onescan

TYPES = (jnp.int8, jnp.uint8, jnp.int16, jnp.int32, jnp.uint32)


def numbers(dtype, count: int) -> tuple[jax.Array, jax.Array]:
    """Random ones of all sizes, neighbours of multiples, and the extremes."""
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    few = [info.min, info.min + 1, -1 % (info.max + 1), 0, 1, 2, 3, info.max]
    few += [-1] if info.min else []
    x, y = (a.ravel() for a in np.meshgrid(few, few))
    size = rng.integers(1, info.bits, count)
    y = np.concatenate(
        [y, rng.integers(0, 2**size) - (2 ** (size - 1) if info.min else 0)]
    )
    times = info.max // np.maximum(np.abs(y[len(x) :]), 1)
    near = y[len(x) :] * (rng.random(count) * times).astype(np.int64)
    near += rng.integers(-1, 2, count)
    x = np.concatenate([x, np.clip(near, info.min, info.max)])
    return jnp.asarray(x.astype(dtype)), jnp.asarray(y.astype(dtype))


def in_a_loop(f, x, y):
    def step(c, _):
        return f(x, c), None

    with onescan.engine("native"):
        return jax.jit(lambda y: onescan.scan(step, y, None, length=1)[0])(y)


@pytest.mark.parametrize("f", [lax.div, lax.rem])
@pytest.mark.parametrize("dtype", TYPES)
def test_vectors(f, dtype):
    x, y = numbers(dtype, 3000)
    np.testing.assert_array_equal(in_a_loop(f, x, y), f(x, y))


@pytest.mark.parametrize("by", [0, 1, -1, 2, -7, 97, -(2**31)])
def test_constants(by):
    x, _ = numbers(jnp.int32, 100)
    number = np.int32(by)
    both = lambda c: lax.div(c, number) + lax.rem(c, number)
    found = in_a_loop(lambda _, c: both(c), x, x)
    np.testing.assert_array_equal(found, both(x))


@pytest.mark.parametrize("f", [lax.div, lax.rem])
@pytest.mark.parametrize("dtype", TYPES)
def test_by_one_number(f, dtype):
    """The divisor of each step is the same for all lanes."""
    x, y = numbers(dtype, 3000)
    info = np.iinfo(dtype)
    few = [0, 1, 2, 3, 7, 10, 97, info.max - 1, info.max, info.min, info.min // 2]
    few += [-1, -2, -7, -97] if info.min else [info.max // 2 + 1]
    by = jnp.concatenate([jnp.array(few, dtype), y[:: len(y) // 60]])

    with onescan.engine("native"):
        step = lambda c, d: (c ^ f(x, d), f(x, d))
        run = jax.jit(lambda x, by: onescan.scan(step, x, by))
        _, found = run(x, by)
    np.testing.assert_array_equal(found, jax.vmap(lambda d: f(x, d))(by))


SIZES = [3, 6, 7, 10, 641, 1000, 2**31 + 1, 2**32 - 1, 2**62 + 1, 2**63 - 1]
SIGNED = [(np.int64, sign * size) for size in SIZES for sign in (1, -1)]
UNSIGNED = [(np.uint64, n) for n in [*SIZES, 2**63 + 1, 2**64 - 3, 2**64 - 1]]


@pytest.mark.parametrize(("dtype", "by"), [*SIGNED, *UNSIGNED])
def test_constants_of_64_bits(dtype, by):
    rng = np.random.default_rng(by % 2**32)
    near = [n * by + more for n in range(-40, 40) for more in (-1, 0, 1)]
    few = [0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
    x = np.array([n % 2**64 for n in [*few, *near]], np.uint64)
    x = np.concatenate([x, rng.integers(0, 2**64, 300, np.uint64)]).astype(dtype)
    with jax.enable_x64(True):
        number = dtype(by)
        both = lambda c: jnp.stack([lax.div(c, number), lax.rem(c, number)])
        found = in_a_loop(lambda _, c: both(c[0]), x, jnp.stack([x, x]))
        np.testing.assert_array_equal(found, both(x))
