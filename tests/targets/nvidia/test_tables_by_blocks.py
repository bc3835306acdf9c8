"""Carries that loops, branches and updates inside a step change, by threads of a block.

A block keeps carries in two places, one of which all read while they write the other.
What is changed before the end of a step has one place, and threads wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from block_runs import by_both
from jax import lax

N = 100
STEPS = 3


def looped(c: Any, x: Any) -> Any:
    """All threads read what a loop made of the carry, each where it likes."""
    made = lax.fori_loop(0, 3, lambda i, s: jnp.sin(s) + i, c)
    return jnp.tanh(made[::-1]), (made + made[::-1], made.sum() * x)


def looped_table(c: Any, x: Any) -> Any:
    step = lambda i, t: t.at[(i * 7) % N].set(t[(i * 3) % N] + x)
    return lax.fori_loop(0, 20, step, c), c[3]


def filled_row(c: Any, x: Any) -> Any:
    table = c.reshape(10, 10)
    cell = lambda i, j, t: t.at[i, j].add(t[i - 1, j] * 0.5 + t[i, j - 1])
    row = lambda i, t: lax.fori_loop(1, 10, lambda j, t: cell(i, j, t), t)
    return lax.fori_loop(1, 10, row, table).reshape(N) * 0.1 + x, table[1]


def branched(c: Any, x: Any) -> Any:
    change = lambda t: t.at[5].set(x).at[7].add(t[4])
    new = lax.cond(c[0] + x > 0.5, change, lambda t: t, c)
    return new, new[::-1] + new


def updated_on_the_way(c: Any, x: Any) -> Any:
    """Not the last thing that happens to it."""
    made = c.at[3].add(x)
    return made[::-1] * 0.5 + made, made[3]


def waited(c: Any, x: Any) -> Any:
    again = lambda s: s[0][1] < 3
    return lax.while_loop(again, lambda s: (s[0] + s[0][::-1], x), (c, x))[0], c[1]


STEPS_OF: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (looped, looped_table, filled_row, branched, updated_on_the_way, waited)
}


@pytest.mark.parametrize("name", STEPS_OF)
@pytest.mark.parametrize("size", [N, 40])
def test_changed_before_the_end_of_a_step(name: str, size: int) -> None:
    if size < N and name in ("filled_row", "looped_table"):
        pytest.skip("made for one size")
    carry = jnp.linspace(0.1, 1, size)
    ours, stock = by_both(STEPS_OF[name], carry, jnp.linspace(0, 1, STEPS), 128)
    for a, b in zip(ours, stock, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def test_gradient_of_a_table() -> None:
    """Its cotangents are a table, too, that loops inside a loop change."""
    size = 9

    def total(costs: Any) -> Any:
        def cell(i: Any, j: Any, t: Any) -> Any:
            near = jnp.stack([t[i - 1, j - 1], t[i - 1, j], t[i, j - 1]])
            return t.at[i, j].set(costs[i - 1, j - 1] - jax.nn.logsumexp(-near))

        row = lambda i, t: lax.fori_loop(1, size, lambda j, t: cell(i, j, t), t)
        return lax.fori_loop(1, size, row, jnp.zeros((size, size)))[-1, -1]

    def step(c: Any, x: Any) -> Any:
        return c - 0.1 * jax.grad(total)(c * x), c.sum()

    carry = jnp.linspace(0, 1, 64).reshape(8, 8)
    ours, stock = by_both(step, carry, jnp.ones(2), 64)
    for a, b in zip(ours, stock, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
