"""The pass that gives a body the large arrays that it holds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from passing import assert_same, loop_of, splits_of

import onescan
from onescan.passes.constants import LARGEST_LITERAL, constants

DATA = np.linspace(-1.0, 1.0, 2 * LARGEST_LITERAL, dtype=np.float32).reshape(-1, 4)


def step(w, x):
    seen = DATA @ w
    return 0.9 * w + x * jnp.tanh(seen) @ DATA / len(DATA), (seen * seen).sum()


def test_large_literals_become_constants():
    """A function that is compiled by itself keeps them as its own."""
    inner = jax.jit(step)
    loop, args = loop_of(
        lambda w, x: inner(w, x), jnp.ones(4), jnp.linspace(0.0, 1.0, 5)
    )
    splits = splits_of(loop, constants)
    assert_same(loop, splits, args)
    (split,) = splits
    assert split.loop.num_consts == loop.num_consts + 1  # the same array is given once


def test_scans_and_while_loops_with_data_are_kernels():
    def until(w):
        test = lambda state: state[1] < 5
        return jax.lax.while_loop(
            test, lambda s: (step(s[0], 0.5)[0], s[1] + 1), (w, 0)
        )

    onescan.clear_report()
    found = {}
    for engine in ("native", "xla"):
        with onescan.engine(engine):
            onescan.install()
            try:
                scan = jax.jit(lambda w, x: jax.lax.scan(step, w, x))
                found[engine] = (
                    scan(jnp.ones(4), jnp.ones(3)),
                    jax.jit(until)(jnp.ones(4)),
                )
            finally:
                onescan.uninstall()
    engines = [row.engine for row in onescan.report().rows if row.name != "<lambda>"]
    assert "native" in engines
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        *found.values(),
    )
