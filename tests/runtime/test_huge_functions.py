"""Functions of a thousand blocks are optimised briefly, and do the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import onescan
from onescan.runtime import compiler


def step(c, x):
    """What becomes loops, branches and a factor in a kernel."""
    rows = lax.while_loop(lambda m: jnp.max(m) > 3.25, lambda m: m * 0.4375, c @ c.T)
    spread = jnp.linalg.cholesky(rows + 9.5 * jnp.eye(len(c)))
    moved = lax.cond(x[0] > 0.1875, lambda m: jnp.sin(m), lambda m: m - 0.6875, spread)
    return 0.3125 * c + moved[:, : c.shape[1]] * x, jnp.sum(moved, 0)


@pytest.mark.parametrize("lanes", [None, 33])
def test_the_same_results(monkeypatch: pytest.MonkeyPatch, lanes: int | None) -> None:
    seen = []
    briefly = compiler._briefly
    note = lambda builder: seen.append(1) or briefly(builder)
    monkeypatch.setattr(compiler, "_briefly", note)
    monkeypatch.setattr(compiler, "HUGE", 3)
    key = jax.random.key(0)
    c, xs = jax.random.normal(key, (12, 5)), jax.random.normal(key, (40, 5))
    run = lambda c, xs: onescan.scan(step, c, xs)
    if lanes:
        c, xs = jnp.stack([c] * lanes), jax.random.normal(key, (lanes, 40, 5))
        run = jax.vmap(run)
    with onescan.engine("native"):
        got = jax.jit(run)(c, xs)
    with onescan.engine("xla"):
        want = jax.jit(lambda c, xs: run(c, xs))(c, xs)
    assert seen
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-4)
