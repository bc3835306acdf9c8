"""Rows of tables at places: vectors lie along the rows, not across them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from engines import assert_engines_agree
from jax import lax
from kernels import loop_in

from onescan.plan.work import equations
from onescan.primitives import record_of
from onescan.targets.cpu.machine import Machine
from onescan.targets.cpu.plan import choose

MOVES = "gather", "update"
TABLE = jnp.linspace(-1.0, 1.0, 20 * 64).reshape(20, 64)
TABLES = jnp.stack([TABLE + k for k in range(16)])
PLACES = jnp.arange(5 * 16).reshape(5, 16) * 7 % 20


def looked_up(table: Any, places: Any) -> Any:
    c = jnp.zeros((places.shape[1], *table.shape[1:]))
    return lax.scan(lambda c, w: (c * 0.5 + table[w], None), c, places)[0]


def each(step: Any) -> Any:
    """A loop for each table and its places."""

    def run(tables: Any, places: Any) -> Any:
        one = lambda table, places: lax.scan(step, table, places)[0]
        return jax.vmap(one)(tables, places.T)

    return run


def set_row(c: Any, w: Any) -> Any:
    return c.at[w].set(c[w] * 0.5 + 1), None


def add_row(c: Any, w: Any) -> Any:
    return c.at[w].add(1.0), None


def rolled(c: Any, w: Any) -> Any:
    return jnp.maximum(c, jnp.roll(c, w) * 0.5), None


PROGRAMS = {
    "rows of one table": (looked_up, TABLE, PLACES),
    "rows of each": (each(lambda c, w: (c * 0.5 + c[w], None)), TABLES, PLACES),
    "set": (each(set_row), TABLES, PLACES),
    "add": (each(add_row), TABLES, PLACES),
    "rolled": (each(rolled), TABLES[:, 0], PLACES),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_vectors_lie_along_rows(name: str) -> None:
    """16 rows of a table for a batch took 8 times as long across them."""
    f, tables, places = PROGRAMS[name]
    assert_engines_agree(f, tables, places, ulps=4)
    loop = loop_in(f, tables, places)
    plan = choose(loop, Machine(64, cores=2))
    eqns = [e for e in equations(loop.body.jaxpr) if record_of(e).kind in MOVES]
    assert eqns
    assert not any(plan.is_laned(e.invars[1]) for e in eqns)


def test_numbers_of_a_table() -> None:
    """Where places are all there is, vectors lie along those."""
    table = TABLE[:, 0]
    assert_engines_agree(looked_up, table, PLACES, ulps=4)
    plan = choose(loop_in(looked_up, table, PLACES), Machine(64, cores=2))
    assert plan.vector is not None


def test_a_single_number_has_no_places() -> None:
    """Found by reading: its update has two operands, and no third to count."""

    def step(c: Any, x: Any) -> Any:
        one, row = c
        return (lax.dynamic_update_slice(one, one + x, ()), row * 0.5 + x), None

    init = jnp.float32(1), jnp.ones(16)
    run = lambda xs: lax.scan(step, init, xs)[0]
    assert_engines_agree(run, jnp.arange(3.0), ulps=1)
