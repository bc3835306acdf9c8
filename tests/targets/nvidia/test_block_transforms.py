"""Transforms and eigenvalues by the threads of a block, run by threads of the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu_lowering import H200
from gpu_threads import by_a_warp
from jax import lax
from passing import loop_of

from onescan.passes.pairs import pairs
from onescan.targets.nvidia.target import Nvidia

TARGET = Nvidia(H200)


def agree(step: Any, carry: Any) -> None:
    """A kernel of one block of a warp has the results of stock JAX."""
    loop, args = loop_of(step, carry, None, length=3)
    split = pairs(loop)
    if split is not None:
        loop, args = split.loop, split.before(args)
    found: Any = by_a_warp(TARGET, loop, args)
    if split is not None:
        found = split.after(args, list(map(jnp.asarray, found)))
    expected = jax.tree.leaves(lax.scan(step, carry, None, length=3))
    for ours, stock in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, stock, 1e-4, 1e-4)


def numbers(*shape: int) -> Any:
    parts = np.random.default_rng(0).normal(size=(2, *shape))
    return jnp.asarray((parts[0] + 1j * parts[1]).astype(np.complex64))


@pytest.mark.parametrize("shape", [(4,), (64,), (512,), (8, 16)])
def test_transforms(shape: tuple[int, ...]) -> None:
    half = np.linspace(0, 1, shape[-1]).astype(np.complex64)
    agree(
        lambda u, _: (jnp.fft.ifftn(half * jnp.fft.fftn(u)) + u, u.real),
        numbers(*shape),
    )


@pytest.mark.parametrize("n", [3, 6])
def test_eigenvalues_and_singular_values(n: int) -> None:
    def step(c: Any, _: Any) -> Any:
        values, vectors = jnp.linalg.eigh(c + c.T)
        left, sizes, right = jnp.linalg.svd(c)
        made = 0.1 * values[:, None] * sizes + 0.5 * c.T
        return made, (jnp.abs(vectors), jnp.abs(left * right.T))

    start = np.diag(np.arange(1, n + 1)) + 0.1 * np.asarray(numbers(n, n).real)
    agree(step, jnp.asarray(start, np.float32))
