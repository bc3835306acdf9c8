"""Numbers that are put into a small row that is read as a whole."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree, run
from jax import lax
from passing import loop_of

import onescan
from onescan.passes.inside import inside
from onescan.passes.placed import MOST, placed

ROW = jnp.arange(8) / 4 - 1  # so that sums are exact
#: inside, at both ends, and outside
PLACES = jnp.array([3, 0, 7, 8, -1, -8, -9, 100, 3], jnp.int32)
NUMBERS = 2 + jnp.arange(len(PLACES)) / 8


def drop(row: Any, i: Any, x: Any) -> Any:
    return row.at[i].set(x, mode="drop")


SETTERS = {
    "set": lambda row, i, x: row.at[i].set(x),
    "drop": drop,
    "no negative ones": lambda row, i, x: drop(row, i.astype("uint32"), x),
    "clip": lambda row, i, x: row.at[i].set(x, mode="clip"),
    "clip small numbers": lambda row, i, x: row.at[i.astype("int8")].set(
        x, mode="clip"
    ),
    "add": lambda row, i, x: row.at[i].add(x),
    "slice": lambda row, i, x: lax.dynamic_update_slice(row, x[None], (i,)),
    "twice": lambda row, i, x: drop(row.at[i].set(x), 7 - i, -x),
    "integers": lambda row, i, x: (
        row.astype("int16").at[i].set(i.astype("int16")).astype(row.dtype)
    ),
    "halves": lambda row, i, x: (
        row.astype("bfloat16").at[i].add(x.astype("bfloat16")).astype(row.dtype)
    ),
}


def is_placed(step: Any, carry: Any = ROW, xs: Any = (PLACES, NUMBERS)) -> bool:
    """Whether a loop selects; both engines agree on it."""
    assert_engines_agree(lambda c, xs: lax.scan(step, c, xs), carry, xs, ulps=16)
    loop, _ = loop_of(step, carry, xs)
    return placed(loop) is not None


@pytest.mark.parametrize("row", [ROW, ROW + 1j, jnp.arange(8)], ids=str)
def test_a_function_of_a_number(row: Any) -> None:
    """Wrong results, found by a tester: what a function makes of it was not asked."""

    def step(row: Any, i: Any) -> Any:
        row = row.at[i].apply(lambda x: 2 * x + 1)
        return row, row.sum()

    loop = lambda row: lax.scan(step, row, jnp.arange(5) * 3 % 8)
    ours, stock = (run(engine, loop, row) for engine in ("auto", "xla"))
    jax.tree.map(np.testing.assert_array_equal, ours, stock)
    with pytest.raises(
        onescan.EngineError, match=r"`scatter` at .* applies a function"
    ):
        run("native", loop, row)


@pytest.mark.parametrize("name", SETTERS)
def test_a_number_of_a_row(name: str) -> None:
    def step(row: Any, x: Any) -> Any:
        row = SETTERS[name](row, *x)
        return row, (row.sum(), row)

    assert is_placed(step)


def test_the_next_step_reads_it() -> None:
    assert is_placed(lambda row, x: (row.at[x[0]].set(x[1]), jnp.tanh(row)))


def test_what_it_sets_comes_from_another_carry() -> None:
    def step(state: Any, x: Any) -> Any:
        row, mean = state
        row = row.at[x[0]].set(x[1] + 0.3 * mean)
        return (row, row.mean()), mean

    assert is_placed(step, (ROW, jnp.float32(0)))


def test_the_number_and_its_place_follow_from_the_row() -> None:
    def step(row: Any, x: Any) -> Any:
        return row.at[jnp.argmin(row)].set(row.max() - x[1]), row.sum()

    assert is_placed(step)


def test_in_while_loops() -> None:
    def round_(state: Any) -> Any:
        i, row, total = state
        return i + 1, row.at[i % 8].set(i / 4.0), total + row.sum()

    def rounds(row: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 20, round_, (0, row, 0.0))

    assert_engines_agree(rounds, ROW)
    assert "inside" in onescan.report().rows[-1].passes


def test_in_loops_inside() -> None:
    """Each number of a row from all of them, as by Gauss and Seidel."""

    def sweep(row: Any, x: Any) -> Any:
        update = lambda i, row: row.at[i].set(row.sum() / 16 + x)
        return lax.fori_loop(0, 8, update, row), row

    assert_engines_agree(lambda row: lax.scan(sweep, row, NUMBERS), ROW, ulps=16)
    loop, _ = loop_of(sweep, ROW, NUMBERS)
    eqns = inside(loop, (placed,)).loop.body.jaxpr.eqns
    (swept,) = [eqn for eqn in eqns if eqn.primitive is lax.scan_p]
    names = {eqn.primitive.name for eqn in swept.params["jaxpr"].jaxpr.eqns}
    assert "select_n" in names
    assert "scatter" not in names


def test_not_where_single_numbers_are_read() -> None:
    assert not is_placed(lambda row, x: (row.at[x[0]].set(x[1]), row[x[0] + 1]))


def test_not_in_a_large_row() -> None:
    row = jnp.zeros(MOST + 1)
    assert not is_placed(lambda row, x: (row.at[x[0]].set(x[1]), row.sum()), row)


def test_not_of_several_numbers_or_dimensions() -> None:
    two = np.arange(2)
    assert not is_placed(lambda row, x: (row.at[x[0] + two].set(x[1]), row.sum()))
    grid = jnp.ones((3, 4))
    assert not is_placed(lambda c, x: (c.at[x[0], 1].set(x[1]), c.sum()), grid)
