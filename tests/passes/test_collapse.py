"""The pass that takes dimensions as one which nothing tells apart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import run
from passing import assert_same, loop_of, notes_of, splits_of

import onescan
from onescan.passes.collapse import collapse
from onescan.passes.simplify import simplify

C = jnp.linspace(-0.5, 1.0, 40 * 6).reshape(40, 6)
XS = jnp.linspace(0.5, -0.2, 5 * 40 * 6).reshape(5, 40, 6)


def shapes(loop: Any) -> set[tuple[int, ...]]:
    jaxpr = loop.body.jaxpr
    values = [*jaxpr.invars, *(v for eqn in jaxpr.eqns for v in eqn.outvars)]
    return {v.aval.shape for v in values}


def normal(c: Any) -> Any:
    """Of mean 0, with what `keepdims` leaves of the dimensions."""
    return c - c.mean(keepdims=True)


STEPS = {
    "sum": lambda c, x: (c * 0.9 + jnp.tanh(c.sum()) * x, None),
    "largest": lambda c, x: (c - x.max() * 0.1, c.min()),
    "ys": lambda c, x: (c + x.sum() * 1e-3, (c * x, c > x)),
    "constants": lambda c, x: (jnp.where(C > 0, c, x) + (c * C).sum() * 1e-3, None),
    "a mean": lambda c, x: (normal(c * 0.5 + x), None),
    "all of them": lambda c, x: (c + 1e-3 * jnp.prod(jnp.cos(x)), jnp.any(c > x)),
    "numbers": lambda c, x: (jnp.ones_like(c) * c.sum() + x, None),
}


@pytest.mark.parametrize("name", STEPS)
def test_dimensions_become_one(name: str) -> None:
    loop, args = loop_of(STEPS[name], C, XS)
    splits = splits_of(loop, simplify, collapse)
    assert_same(loop, splits, args)
    *_, split = splits
    assert notes_of(split) == ["took dimensions that nothing tells apart as one"]
    assert (40, 6) not in shapes(split.loop)
    assert (240,) in shapes(split.loop)


FLAT = {
    "roll": lambda c, x: (jnp.roll(c.reshape(-1), 1).reshape(c.shape) + x, None),
    "differences": lambda c, x: (
        (c + jnp.diff(x.reshape(-1), append=0).reshape(40, 6),) * 2
    ),
    "cumulative": lambda c, x: (
        jnp.cumsum(c.ravel()).reshape(c.shape) * 1e-2 + x,
        None,
    ),
    "reads": lambda c, x: (c * 0.5 + x, c.reshape(-1)[3::7]),
    "of both": lambda c, x: (c * c.sum() * 1e-3 + x, jnp.sort(c.ravel())),
}


@pytest.mark.parametrize("name", FLAT)
def test_what_is_reshaped(name: str) -> None:
    """Where a reshape makes one dimension of two, or two of one, it is gone."""
    loop, args = loop_of(FLAT[name], C, XS)
    splits = splits_of(loop, simplify, collapse)
    assert_same(loop, splits, args)
    assert (40, 6) not in shapes(splits[-1].loop)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ((3, 10, 4), (3, 40)),
        ((3, 10, 4), (30, 4)),
        ((3, 10, 4), (6, 5, 4)),
        ((3, 10, 4), (3, 8, 5)),
        ((3, 10, 4), (120,)),
        ((3, 10, 4), (3, 1, 40)),
        ((3, 1, 4), (12,)),
        ((1, 12), (4, 3)),
        ((3, 0), (0,)),
        ((1,), ()),
    ],
)
def test_reshapes(given: tuple[int, ...], made: tuple[int, ...]) -> None:
    def step(c, x):
        moved = jnp.sin(c.reshape(made) + 1.0) * 0.5
        return moved.reshape(given) + x, jnp.flip(moved)

    c = jnp.linspace(-1.0, 1.0, int(np.prod(given))).reshape(given)
    xs = jnp.ones((4, *given)) * 0.1
    loop, args = loop_of(step, c, xs)
    if splits := splits_of(loop, simplify, collapse):
        assert_same(loop, splits, args)
    expected = jax.jit(lambda c: jax.lax.scan(step, c, xs))(c)
    ours = jax.jit(lambda c: onescan.scan(step, c, xs))(c)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), expected, ours
    )


def test_rows_that_are_read_tell_dimensions_apart() -> None:
    step = lambda c, x: (c.reshape(-1)[::-1].reshape(40, 6) + c[3] + x, None)
    loop, _ = loop_of(step, C, XS)
    assert not splits_of(loop, collapse)


def test_some_of_three() -> None:
    """The first of three dimensions is walked alone, and reduced alone."""
    c = jnp.linspace(-1.0, 1.0, 3 * 10 * 4).reshape(3, 10, 4)

    def step(c, x):
        each = c.sum((1, 2))
        spread = jax.lax.broadcast_in_dim(0.01 * jnp.tanh(each), c.shape, (0,))
        return c * 0.9 + spread, c.sum(0)

    loop, args = loop_of(step, c, jnp.ones(4))
    (split,) = splits_of(loop, collapse)
    assert_same(loop, [split], args)
    assert {(3, 40), (40,)} <= shapes(split.loop)


@pytest.mark.parametrize(
    "step",
    [
        lambda c, x: (c * x, None),  # lanes, which the planner takes as one
        lambda c, x: (c + x.sum(0) * 1e-3 + x.sum(), None),
        lambda c, x: (c + x.sum(1)[:, None] * 1e-3 + x.sum(), None),
        lambda c, x: (jnp.roll(c, 1, 1) + x.sum(), None),
        lambda c, x: (c @ jnp.eye(6) + c.sum(), None),
        lambda c, x: (c + jnp.arange(6.0) * c.sum(), None),
        lambda c, x: (c * 0.5 + x.sum(), x.T),
        lambda c, x: (c * 0.5 + c.sum(), c[0, 0]),
    ],
)
def test_what_is_told_apart_stays(step: Any) -> None:
    loop, args = loop_of(step, C, XS)
    splits = splits_of(loop, collapse)
    if splits:  # of another array
        assert_same(loop, splits, args)
        loop = splits[-1].loop
    assert (40, 6) in shapes(loop)


def test_full_vectors_stay() -> None:
    loop, _ = loop_of(
        lambda c, x: (c + c.sum(), None), jnp.ones((8, 64)), jnp.ones((3, 1))
    )
    assert not splits_of(loop, collapse)


def test_in_a_kernel() -> None:
    def f(c, xs):
        return onescan.scan(STEPS["ys"], c, xs)

    found, expected = (run(engine, f, C, XS) for engine in ("native", "xla"))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), found, expected
    )


def random_step(seed: int) -> tuple[Any, tuple[int, ...]]:
    """A body of operations that tell some dimensions apart, or none."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(2, 5)))
    plan = [(rng.random(), rng.integers(1 << 30)) for _ in range(rng.integers(2, 8))]

    def step(c, x):
        values = [c, x]
        for kind, number in plan:
            some = np.random.default_rng(number)
            a, b = (values[some.integers(len(values))] for _ in range(2))
            axes = tuple(i for i in range(len(shape)) if some.random() < 0.6)
            if kind < 0.4:
                values.append(jnp.sin(a) - 0.5 * b)
            elif kind < 0.8:
                reduce = [jnp.sum, jnp.max, jnp.mean][some.integers(3)]
                kept = reduce(a, axes, keepdims=bool(some.random() < 0.7))
                if kept.ndim == len(shape):
                    values.append(b + jnp.tanh(kept))
                else:
                    dims = [i for i in range(len(shape)) if i not in axes]
                    values.append(jax.lax.broadcast_in_dim(jnp.cos(kept), shape, dims))
            else:
                values.append(jnp.where(a > b, a, 0.1))
        return jnp.tanh(values[-1]), (values[len(values) // 2], values[-1].sum())

    return step, shape


@pytest.mark.parametrize("seed", range(24))
def test_random_bodies(seed: int) -> None:
    step, shape = random_step(seed)
    rng = np.random.default_rng(seed)
    c, xs = (jnp.asarray(rng.normal(size=s), np.float32) for s in (shape, (4, *shape)))
    loop, args = loop_of(step, c, xs)
    if splits := splits_of(loop, simplify, collapse):
        assert_same(loop, splits, args, 1e-4)
