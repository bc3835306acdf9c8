"""What a step reads a few elements of is computed for those alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree
from jax import lax
from kernels import kernel_of, loop_in, plan_of

import onescan
from onescan.emit.budget import instructions

TABLE = jnp.asarray(np.random.default_rng(0).normal(size=(64, 48)), jnp.float32)
ROW, COLUMN = TABLE[0], TABLE[:, 0]
EVERY = jnp.arange(-70, 70)


def of_a_row(c: Any, i: Any) -> Any:
    row = jnp.sqrt(jnp.abs(c * TABLE) + 0.1)[i]
    return 0.5 * c + 0.01 * row, None


def of_a_slice(c: Any, i: Any) -> Any:
    some = lax.dynamic_slice(jnp.sqrt(jnp.abs(c * TABLE) + 0.1).T, (i, i), (3, 2))
    return 0.5 * c + some.sum(), some


def of_one_in_each_row(c: Any, i: Any) -> Any:
    table = jnp.sqrt(jnp.abs(c[:, None] * TABLE) + 0.1) - c[:, None]
    places = (jnp.arange(64)[:, None] + i) % 50  # some of which are outside
    return jnp.take_along_axis(table, places, 1, mode="clip")[:, 0], table[3, 7]


def of_what_is_filled(c: Any, i: Any) -> Any:
    found = (
        jnp.sqrt(jnp.abs(c * TABLE) + 0.1)
        .at[i, i + 3]
        .get(mode="fill", fill_value=0.25)
    )
    return 0.5 * c + found, found


def of_a_column_that_is_spread(c: Any, i: Any) -> Any:
    return c + 1e-3 * (jnp.sqrt(jnp.abs(c) + 0.1)[:, None] * TABLE)[i, i - 5], None


#: steps, and the roots that one of them has to take
CASES: dict[str, tuple[Callable[..., Any], Any, int]] = {
    "a row": (of_a_row, ROW, 48),
    "a slice": (of_a_slice, ROW, 6),
    "one in each row": (of_one_in_each_row, COLUMN, 65),
    "what is filled": (of_what_is_filled, ROW, 1),
    "a column that is spread": (of_a_column_that_is_spread, COLUMN, 1),
}


def looped(step: Callable[..., Any]) -> Callable[..., Any]:
    return lambda c: onescan.scan(step, c, EVERY)


@pytest.mark.parametrize("case", CASES)
def test_only_what_is_read(case: str) -> None:
    step, carry, least = CASES[case]
    profile = kernel_of(plan_of(loop_in(looped(step), carry))).profile
    assert profile is not None
    roots = sum(
        n * int(kind[1:].split(" ")[0] if kind.startswith("<") else 1)
        for (name, kind), n in profile.runs.items()
        if name == "llvm.sqrt"
    )
    assert least <= roots * profile.tiles / len(EVERY) <= 2 * least + 16


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, batch: int) -> None:
    step, carry, _ = CASES[case]
    rows = jnp.stack([carry * (1 + 0.1 * k) for k in range(batch)])
    assert_engines_agree(jax.vmap(looped(step)), rows, ulps=64)


def test_gradient() -> None:
    loss = lambda c: looped(of_one_in_each_row)(c)[0].sum()
    assert_engines_agree(jax.grad(loss), COLUMN, ulps=64)


def test_before_what_is_read_is_overwritten() -> None:
    """The old elements, though they are pulled where the carry is new."""

    def step(c: Any, i: Any) -> Any:
        row = (2 * c + 1.5)[i % 64]
        return c.at[(i + 1) % 64].set(0.1 * row), (row, row[::-1] - 1)

    assert_engines_agree(looped(step), TABLE, ulps=4)


def test_what_is_read_whole_as_well_is_computed_whole() -> None:
    def step(c: Any, i: Any) -> Any:
        roots = jnp.sqrt(jnp.abs(c) + 0.1)
        return roots, roots[i % 64, ::2] + jnp.tanh(roots)[3, i % 48]

    assert_engines_agree(looped(step), TABLE, ulps=64)


def test_what_is_spread_is_computed_once() -> None:
    def step(c: Any, _: Any) -> Any:
        return 0.5 * c + jnp.sqrt(jnp.abs(c[:, :1]) + 0.1), None

    loop = loop_in(lambda c: onescan.scan(step, c, None, 10), TABLE)
    profile = kernel_of(plan_of(loop)).profile
    assert profile is not None
    runs = sum(n for (name, _), n in profile.runs.items() if name == "llvm.sqrt")
    assert runs * profile.tiles <= 10 * 64


def test_code_for_each_lane_is_short() -> None:
    def step(c: Any, i: Any) -> Any:
        table = jnp.tanh(c[:, None] * TABLE) * jnp.exp(-c[:, None] * TABLE)
        places = (jnp.arange(64)[:, None] + i) % 48
        return jnp.take_along_axis(table, places, 1)[:, 0] + c.mean(), None

    loop = loop_in(looped(step), COLUMN)
    assert instructions(kernel_of(plan_of(loop)).module) < 700
