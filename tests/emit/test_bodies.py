"""Arrays whose last dimension is a few numbers, as pairs of bodies have, or none."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from engines import run
from jax import lax
from kernels import by_kernel, by_xla, inputs_of, kernel_of, loop_in, plan_of

import onescan
from onescan.emit.budget import instructions
from onescan.plan.layout import buffer_layouts
from onescan.plan.plan import minor_dimension


@pytest.mark.parametrize(
    ("shape", "along"),
    [
        ((256, 256, 2), 1),
        ((5000, 16, 2), 1),
        ((1000, 3, 2), 0),
        ((40, 8), 0),
        ((40, 300, 16), 2),
        ((4, 4, 2), 1),
        ((9, 3), 0),
        ((9, 4), 1),
        ((3, 2), 1),
        ((256, 20), 1),
    ],
)
def test_vectors_lie_along_the_longest_with_a_few_numbers_behind(
    shape: tuple[int, ...], along: int
) -> None:
    """A few bodies are a narrow vector, where wide ones would be numbers one by one."""
    assert minor_dimension(shape, 16) == along


def pairs(c: Any, x: Any) -> Any:
    """Bodies that are pushed by others."""
    apart = x[None] - c[:, None]
    squares = (apart**2).sum(-1) + 0.5
    near = squares < 2.0
    push = (apart / squares[..., None]).sum(1)
    pull = (apart * near[..., None]).sum(1) / (1 + near.sum(1, keepdims=True))
    return c + 0.1 * (pull - push), squares.min()


@pytest.mark.parametrize("shape", [(40, 2), (33, 3), (17, 4), (40, 5), (3, 2)])
def test_nothing_behind_an_array_is_read(shape: tuple[int, ...]) -> None:
    """Vectors lie across the numbers of each body."""
    loop = loop_in(
        lambda c, x: lax.scan(pairs, c, x), jnp.ones(shape), jnp.ones((4, *shape))
    )
    inputs = inputs_of(loop)
    found, expected = by_kernel(plan_of(loop), inputs), by_xla(loop, inputs)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-5)


def test_pairs_are_little_code() -> None:
    """Reading each number of a vector by itself took four times as much."""
    loop = loop_in(
        lambda c, x: lax.scan(pairs, c, x), jnp.ones((256, 2)), jnp.ones((4, 256, 2))
    )
    assert instructions(kernel_of(plan_of(loop)).module) < 3000


def test_arrays_without_elements_keep_their_layout() -> None:
    """XLA divides by zero, and ends the process, where it has to turn one."""

    def step(c: Any, _: Any) -> Any:
        return c, jnp.einsum("abc,bac->b", *c)

    empty = jnp.ones((0, 17, 17)), jnp.ones((17, 0, 17))
    f = lambda c: onescan.scan(step, c, None, length=2)[1]
    loop = loop_in(lambda c: lax.scan(step, c, None, 2), empty)
    operands, _ = buffer_layouts(plan_of(loop))
    assert operands == [None, None]
    np.testing.assert_array_equal(run("native", f, empty), np.zeros((2, 17)))
