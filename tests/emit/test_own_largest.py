"""Values less the largest of them, which are never above 0."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu_lowering import as_if_on, lowered

import onescan

X = np.random.default_rng(0).normal(size=(4, 20, 7)).astype(np.float32)

FUNCTIONS = {
    "softmax": lambda x: jax.nn.softmax(x * 0.37, -1),
    "of a quotient": lambda x: jax.nn.softmax(x / 3, 0),
    "log_softmax": lambda x: jnp.exp(jax.nn.log_softmax(x * 0.37, -1)),
    "logsumexp": lambda x: jax.nn.logsumexp(x * 0.37, 1),
    "differences": lambda x: x * 0.37 - jnp.max(x * 0.37, -1, keepdims=True),
    "from the smallest": lambda x: jnp.min(x * 0.37) - x * 0.37,
}


def loop(f: Any) -> Any:
    return lambda xs: onescan.scan(lambda c, x: (c, f(x)), 0.0, xs)[1]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scale", [1.0, 1e10, 1e30])
def test_they_are_rounded_alike(name: str, scale: float) -> None:
    """As eager JAX has them: a fused multiply-add makes NaN of an exponential."""
    xs, f = X * np.float32(scale), FUNCTIONS[name]
    with onescan.engine("native"):
        ours = np.asarray(jax.jit(loop(f))(xs))
    eager = np.stack([f(x) for x in xs])
    np.testing.assert_allclose(ours, eager, rtol=1e-5)
    if name in ("differences", "from the smallest"):
        assert ours.max() == 0


@pytest.mark.parametrize(("offset", "fused"), [(jnp.max, False), (jnp.sum, True)])
def test_on_a_gpu(offset: Any, fused: bool) -> None:
    step = lambda c, x: (offset(c * 0.37) - c * 0.37 + x, None)
    with as_if_on() as launches, onescan.engine("native"):
        lowered(lambda c, xs: onescan.scan(step, c, xs)[0], X[0, 0], X[0])
    code = launches[0].code
    assert ("fma.rn.f32" in code) == fused
