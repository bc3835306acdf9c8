"""Updates that may not count."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from engines import assert_engines_agree
from jax import lax
from passing import loop_of

import onescan
from onescan.passes.inside import inside
from onescan.passes.masked import masked

ROWS = jnp.linspace(-1.0, 1.0, 7 * 3).reshape(7, 3).at[2].set(-0.0).at[4].set(jnp.nan)
#: inside, at both ends, and outside
PLACES = jnp.array([3, 0, 6, 7, -1, -7, -8, 100, 2, 2], jnp.int32)
COUNTS = jnp.arange(len(PLACES)) % 3 > 0
UPDATES = {
    "set": lambda c, i, u: c.at[i].set(u),
    "drop": lambda c, i, u: c.at[i].set(u, mode="drop"),
    "clip": lambda c, i, u: c.at[i].set(u, mode="clip"),
    "number": lambda c, i, u: c.at[i, 1].set(u[0]),
    "column": lambda c, i, u: c.at[:, i].set(u[1]),
    "several": lambda c, i, u: c.at[jnp.stack([i, i + 1, i])].set(u),
    "add": lambda c, i, u: c.at[i].add(u),
    "add several": lambda c, i, u: c.at[jnp.stack([i, i + 1, i])].add(u),
    "slice": lambda c, i, u: lax.dynamic_update_slice(c, u[None], (i, 0)),
}


def choosing(update: Any, turned: bool) -> Any:
    def step(c: Any, given: Any) -> Any:
        i, counts = given
        new = update(c, i, jnp.full(3, 8.0) + i)
        return jnp.where(counts, c, new) if turned else jnp.where(counts, new, c), None

    return step


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", UPDATES)
def test_a_few_elements_are_chosen(name: str, turned: bool) -> None:
    step = choosing(UPDATES[name], turned)
    given = PLACES, COUNTS
    assert_engines_agree(lambda c, xs: lax.scan(step, c, xs)[0], ROWS, given)
    loop, _ = loop_of(step, ROWS, given)
    split = masked(loop)
    assert split is not None
    whole = [e for e in split.loop.body.jaxpr.eqns if e.primitive.name == "select_n"]
    assert all(e.outvars[0].aval.shape != ROWS.shape for e in whole)


@pytest.mark.parametrize("kind", ["int32", "bfloat16", "complex64", "bool"])
def test_types(kind: str) -> None:
    step = choosing(lambda c, i, u: c.at[i].set(u.astype(kind)), False)
    rows = jnp.nan_to_num(ROWS * 5).astype(kind)
    run = lambda c, xs: lax.scan(step, c, xs)[0]
    assert_engines_agree(run, rows, (PLACES, COUNTS))


def test_a_sum_of_nothing_keeps_the_sign_of_zero() -> None:
    step = choosing(lambda c, i, u: c.at[i].add(u), False)
    never = jnp.zeros(len(PLACES), bool)
    run = lambda c, xs: lax.scan(step, c, xs)[0]
    native = assert_engines_agree(run, ROWS, (PLACES, never))
    assert jnp.signbit(native[2]).all()


def test_what_is_read_otherwise_stays() -> None:
    def both(c: Any, given: Any) -> Any:
        i, counts = given
        new = c.at[i].set(jnp.float32(3))
        return jnp.where(counts, new, c), new.sum()

    def each(c: Any, given: Any) -> Any:
        i, _ = given
        return jnp.where(c > 0, c.at[i].set(jnp.float32(3)), c), None

    rows = jnp.nan_to_num(ROWS)
    for step in (both, each):
        run = lambda c, xs, step=step: lax.scan(step, c, xs)
        assert_engines_agree(run, rows, (PLACES, COUNTS), ulps=4)
        loop, _ = loop_of(step, rows, (PLACES, COUNTS))
        assert masked(loop) is None


def test_while_loops_and_loops_inside() -> None:
    def going(c: Any) -> Any:
        change = lambda s: (
            jnp.where(s[1] % 3 == 0, s[0].at[s[1]].set(1.0 * s[1]), s[0]),
            s[1] + 1,
        )
        return lax.while_loop(lambda s: s[1] < 20, change, (c, 0))[0]

    assert_engines_agree(going, jnp.zeros(50))

    def step(c: Any, x: Any) -> Any:
        return lax.scan(choosing(UPDATES["set"], False), c, x)[0], None

    xs = (PLACES.reshape(2, 5), COUNTS.reshape(2, 5))
    assert_engines_agree(lambda c, xs: lax.scan(step, c, xs)[0], ROWS, xs)
    loop, _ = loop_of(step, ROWS, xs)
    assert inside(loop) is not None


def test_functions_are_not_values() -> None:
    """A scatter that applies a function is XLA's."""
    step = choosing(lambda c, i, u: c.at[i].apply(jnp.abs), False)
    loop, _ = loop_of(step, ROWS, (PLACES, COUNTS))
    assert masked(loop) is None


def test_the_report_says_so() -> None:
    onescan.clear_report()
    step = choosing(UPDATES["set"], False)
    jax.jit(lambda c, xs: onescan.scan(step, c, xs)).lower(ROWS, (PLACES, COUNTS))
    (row,) = onescan.report().rows
    assert "masked" in row.passes
