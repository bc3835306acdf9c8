"""Random bits of XLA's own generator: the same in kernels, to the last bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import kernels_alone, run
from gpu_lowering import launches_of
from jax import lax
from sampling import pairs

import onescan

#: counters that overflow their lower, and all their words
STATES = [(1, 2, 3, 4), (9, 0, 0xFFFFFFFE, 5), (7, 8, 0xFFFFFFFE, 0xFFFFFFFF)]


def assert_equal(f: Any, *args: Any) -> None:
    both = [jax.tree.leaves(run(engine, f, *args)) for engine in ("native", "xla")]
    for ours, wanted in zip(*both, strict=True):
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize(
    ("state", "shape", "dtype"),
    pairs(STATES, [(), (1,), (9,), (3, 7)], ["uint8", "uint16", "uint32", "uint64"]),
)
def test_bits(state: tuple[int, ...], shape: tuple[int, ...], dtype: str) -> None:
    def draw(key: Any) -> Any:
        step = lambda key, _: lax.rng_bit_generator(key, shape, dtype=np.dtype(dtype))
        return onescan.scan(step, key, None, length=3)

    with kernels_alone():
        assert_equal(draw, jnp.asarray(state, np.uint32))
        wide = [state[0] | state[1] << 32, state[2] | state[3] << 32]
        assert_equal(draw, jnp.asarray(wide, np.uint64))


def walk(impl: str, seed: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        key, x = carry
        key, now = jax.random.split(key)
        up = jax.random.bernoulli(jax.random.fold_in(now, 3), 0.3, (10,))
        by = jax.random.uniform(now, (10,))
        return (key, x + jnp.where(up, by, -by)), by[0]

    init = jax.random.key(seed, impl=impl), jnp.zeros(10)
    (key, x), drawn = onescan.scan(step, init, None, length=5)
    return jax.random.key_data(key), x, drawn


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_keys_of_that_kind(impl: str) -> None:
    assert_equal(lambda seed: walk(impl, seed), 3)


def test_in_lanes() -> None:
    assert_equal(jax.vmap(lambda seed: walk("unsafe_rbg", seed)), jnp.arange(9))


def test_another_algorithm_is_left_to_xla() -> None:
    def draw(key: Any) -> Any:
        step = lambda key, _: lax.rng_bit_generator(
            key, (4,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY
        )
        return onescan.scan(step, key, None, length=3)

    jax.jit(draw)(jnp.arange(4, dtype=np.uint32))
    row = onescan.report().rows[-1]
    assert "`rng_bit_generator` at test_philox.py:" in str(row.reason)


def test_a_gpu_has_it_too() -> None:
    with onescan.engine("native"):
        types = jax.ShapeDtypeStruct((100,), np.int32)
        assert launches_of(jax.vmap(lambda seed: walk("rbg", seed)), types)
