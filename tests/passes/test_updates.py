"""updates: branches that write into an array, and those that must stay as they are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree
from jax import lax
from passing import assert_same, core_of, loop_of, splits_of

import onescan
from onescan.passes.split import Split
from onescan.passes.updates import updates

XS = jnp.linspace(-1.0, 1.0, 24)


def collecting(write: Any, otherwise: Any = lambda c, i, x: c, size: int = 40) -> Any:
    """A loop that keeps something of every second step."""

    def step(carry: Any, x: Any) -> Any:
        i, c = carry
        c = lax.cond(i % 2 == 0, write, otherwise, c, i, x)
        return (i + 1, c), c[3]

    start = jnp.arange(size * 2, dtype=jnp.float32).reshape(size, 2)
    return step, (jnp.int32(-3), start)


def told(splits: list[Split]) -> list[str]:
    return [note for split in splits for note in split.notes]


WRITTEN = {
    "a row": lambda c, i, x: c.at[i].set(x),
    "a row that is added": lambda c, i, x: c.at[i].add(x),
    "past the end": lambda c, i, x: c.at[i * 9].set(x),
    "one number": lambda c, i, x: c.at[i, 1].set(x),
    "a slice": lambda c, i, x: lax.dynamic_update_slice(c, jnp.full((2, 2), x), (i, i)),
    "what it reads": lambda c, i, x: c.at[i].set(c[i + 1] * 0.5 + x),
    "a row of a few operations": lambda c, i, x: c.at[i].set(jnp.abs(c[0]) + x),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_branch_writes_is_written_behind_it(name):
    step, init = collecting(WRITTEN[name])
    loop, args = loop_of(step, init, XS)
    splits = splits_of(loop, updates)
    (cond,) = (e for e in core_of(splits).body.jaxpr.eqns if e.primitive.name == "cond")
    assert all(v.aval.size <= 4 for v in cond.outvars)
    assert told(splits) == ["wrote into 1 array behind a branch, not in it"]
    assert_same(loop, splits, args)
    assert_engines_agree(lambda *a: onescan.scan(step, *a), init, XS)


def test_branches_of_a_switch_and_other_results():
    def step(carry, x):
        i, c, d = carry
        branches = [
            lambda c, d: (c, d, x),
            lambda c, d: (c.at[i].set(x), d, x * 2),
            lambda c, d: (c, d.at[i + 1].set(-x), jnp.abs(x)),
        ]
        c, d, y = lax.switch(i % 3, branches, c, d)
        return (i + 1, c, d), y

    init = jnp.int32(0), jnp.zeros(30), jnp.ones(50)
    loop, args = loop_of(step, init, XS)
    splits = splits_of(loop, updates)
    assert told(splits) == ["wrote into 2 arrays behind a branch, not in it"]
    assert_same(loop, splits, args)
    assert_engines_agree(lambda *a: onescan.scan(step, *a), init, XS)


def few_bits(c: Any, i: Any, x: Any) -> Any:
    """No int8 is past the end of 300 rows."""
    numbers = lax.ScatterDimensionNumbers((0,), (0,), (0,))
    drop = lax.GatherScatterMode.FILL_OR_DROP
    place, row = i[None].astype("int8"), jnp.full(2, x)
    return lax.scatter(c, place, row, numbers, mode=drop)


OTHERS = {
    "both branches": collecting(
        lambda c, i, x: c.at[i].set(x), lambda c, i, x: c.at[i + 1].set(-x)
    ),
    "another array": collecting(
        lambda c, i, x: c.at[i].set(x), lambda c, i, x: jnp.zeros_like(c)
    ),
    "an array of nothing": collecting(
        lambda c, i, x: lax.iota("float32", 80).reshape(40, 2), lambda c, i, x: c
    ),
    "nothing at all": collecting(
        lambda c, i, x: lax.broadcasted_iota("float32", (40, 2), 0)
    ),
    "at places of few bits": collecting(few_bits, size=300),
    "most of it": collecting(lambda c, i, x: c.at[1:].set(x), size=4),
    "read again": collecting(lambda c, i, x: (d := c.at[i].set(x)) + d[0] * 0.01),
    "clamped": collecting(lambda c, i, x: c.at[i].set(x, mode="clip")),
    "several rows": collecting(lambda c, i, x: c.at[jnp.stack([i, i + 1])].set(x)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays_in_its_branch(name):
    step, init = OTHERS[name]
    loop, _ = loop_of(step, init, XS)
    assert updates(loop) is None
    assert_engines_agree(lambda *a: onescan.scan(step, *a), init, XS)


def test_samples_of_numpyro_are_written_in_place():
    """Its loop keeps them so, and was left to XLA for copying all of them."""
    util = pytest.importorskip("numpyro.util")

    def body(state):
        x, key = state
        key, use = jax.random.split(key)
        return x * 0.9 + jax.random.normal(use, x.shape), key

    def samples(x):
        init = x, jax.random.PRNGKey(0)
        options = {"transform": lambda state: state[0], "progbar": False}
        return util.fori_collect(10, 3000, body, init, thinning=3, **options)

    onescan.clear_report()
    expected = jax.jit(samples)(jnp.zeros(3))
    onescan.install()
    try:
        found = jax.jit(lambda x: samples(x))(jnp.zeros(3))
    finally:
        onescan.uninstall()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    rows = [row for row in onescan.report().rows if "numpyro" in row.source]
    assert rows[0].engine == "native"
    assert "updates" in rows[0].passes
