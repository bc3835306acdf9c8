"""Boxes that are set at a place known beforehand, put together of pieces."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from passing import assert_same, core_of, loop_of, splits_of

from onescan.passes.borders import borders
from onescan.plan.lanes import lane_axes


@pytest.mark.parametrize("column", [0, 1, 3])
def test_a_column_leaves_rows_independent(column):
    """Pieces without elements would mix the rows of those they are cut from."""
    step = lambda c, _: (jnp.tanh((c * c).at[:, column].set(0.5)), None)
    loop, args = loop_of(step, jnp.ones((4096, 4)), None, length=2)
    splits = splits_of(loop, borders)
    core = core_of(splits)
    assert [eqn.primitive.name for eqn in core.body.jaxpr.eqns].count("concatenate")
    assert all(0 not in v.aval.shape for e in core.body.jaxpr.eqns for v in e.outvars)
    sizes = {v.aval.shape[dims[0]] for a in lane_axes(core) for v, dims in a.items()}
    assert 4096 in sizes
    assert_same(loop, splits, args)


def test_a_box_in_the_middle():
    step = lambda c, _: (0.5 * (c + 1).at[3:60, 5:64].set(c[:57, :59]), jnp.sum(c))
    loop, args = loop_of(
        step, jax.random.normal(jax.random.key(0), (64, 64)), None, length=3
    )
    assert_same(loop, splits_of(loop, borders), args)
