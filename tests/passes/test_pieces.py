"""Parts of what is put together, put together of parts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from passing import assert_same, loop_of, splits_of

import onescan
from onescan.passes.pieces import pieces

C = jnp.linspace(-1.0, 1.0, 40 * 30).reshape(40, 30)
XS = jnp.linspace(0.5, -0.2, 3 * 40 * 30).reshape(3, 40, 30)


def before(x: Any, axis: int) -> Any:
    return jnp.diff(x, axis=axis, prepend=0)


def after(x: Any, axis: int) -> Any:
    return jnp.diff(x, axis=axis, append=0)


def three(c: Any, x: Any) -> Any:
    """Of three pieces, read by three slices of different sizes."""
    whole = jnp.concatenate([c[:3], x, c[20:]])
    ends = (whole[:50] * 0.5)[5:45], whole[1:2].sum(0)
    return ends[0] + x, (ends[1], whole[40:62])


STEPS = {
    "rows": lambda c, x: (c + 0.1 * after(x, 0), None),
    "columns": lambda c, x: (c * 0.5 + 0.1 * before(c, 1) + x, None),
    "both": lambda c, x: (c * 0.5 + 0.1 * after(before(c, 1), 0) + x, c),
    "three": three,
}


@pytest.mark.parametrize("name", STEPS)
def test_wholes_are_gone(name: str) -> None:
    loop, args = loop_of(STEPS[name], C, XS)
    (split,) = splits_of(loop, pieces)
    assert_same(loop, [split], args)
    largest = max(v.aval.size for eqn in loop.body.jaxpr.eqns for v in eqn.outvars)
    eqns = split.loop.body.jaxpr.eqns
    assert max(v.aval.size for eqn in eqns for v in eqn.outvars) < largest


@pytest.mark.parametrize(
    "step",
    [
        lambda c, x: (c + after(x[:5], 0).sum(), None),  # small
        lambda c, x: (before(c @ jnp.eye(30), 0) + x, None),  # beside a product
        lambda c, x: (c + x, jnp.concatenate([c, x])),  # needed as a whole
        lambda c, x: (jnp.concatenate([c, x])[::2] * 0.5 + x, None),  # every second
        lambda c, x: (jnp.concatenate([c, x])[3:43] * 0.5, None),  # read once
    ],
)
def test_what_stays(step: Any) -> None:
    loop, _ = loop_of(step, C, XS)
    assert not splits_of(loop, pieces)


@pytest.mark.parametrize("shape", [(40, 30), (33, 65), (6, 24, 24), (65, 5, 7)])
@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_waves_in_a_kernel(shape: tuple[int, ...], engine: str) -> None:
    """Two fields, each renewed by differences of the other."""

    def step(fields, _):
        e, h = fields
        h = h + 0.5 * after(e, -1) - 0.3 * after(e, -2)
        return (e + 0.5 * before(h, -1) - 0.3 * before(h, -2), h), e[..., 0]

    e = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    loop = lambda e: onescan.scan(step, (e, e * 0), None, length=4)
    with onescan.engine("xla"):
        expected = jax.jit(lambda e: loop(e))(e)
    with onescan.engine(engine):
        ours = jax.jit(lambda e: loop(e))(e)
    compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    jax.tree.map(compare, expected, ours)
