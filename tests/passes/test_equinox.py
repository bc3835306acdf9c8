"""Equinox's primitives inside of loops: marks, reductions across batches, buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_same

import onescan

KINDS = ("lax", "checkpointed", "bounded")
TRANSFORMS: dict[str, Callable[..., Any]] = {
    "vmap": jax.vmap,
    "grad": lambda f: lambda xs: jax.grad(lambda x: f(x)[0])(xs[0]),
    "grad of vmap": lambda f: jax.grad(lambda xs: jax.vmap(f)(xs)[0].sum()),
}


def _totals(kind: Any) -> Callable[[Any], Any]:
    """A scan over loops of Equinox's, which write into a buffer."""

    def f(xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            def body(state: Any) -> Any:
                y, i, seen = state
                return y * 0.5 + x, i + 1, seen.at[i].set(y)

            y, _, seen = eqxi.while_loop(
                lambda state: (state[1] < 5) & (state[0] < 0.9),
                body,
                (carry, jnp.array(0), jnp.zeros(5)),
                max_steps=8,
                kind=kind,
                buffers=lambda state: state[2],
            )
            return y, seen.sum()

        return jax.lax.scan(step, jnp.zeros(()), xs)

    return f


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_loops_of_equinox(kind: str, transform: str) -> None:
    if kind == "lax" and "grad" in transform:
        pytest.skip("a plain while loop has no gradient")
    xs = jnp.linspace(0.0, 1.0, 8, dtype=jnp.float32)[:, None] * jnp.ones(3)
    f = TRANSFORMS[transform](_totals(kind))
    onescan.install()
    try:
        onescan.clear_report()
        native = jax.jit(f)(xs)
        report = onescan.report()
    finally:
        onescan.uninstall()
    stock = jax.jit(lambda xs: f(xs))(xs)
    assert_same(native, stock, ulps=4)
    reasons = [row.reason for row in report.rows if row.reason]
    assert not [reason for reason in reasons if "no native rule" in reason]


def test_across_a_batch() -> None:
    """What Equinox reduces over a batch is what all of the batch makes it."""

    def f(xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            y = jnp.where(eqxi.unvmap_any(x > 0), carry + 1, carry)
            y = jnp.where(eqxi.unvmap_all(x > 0), y * 2, y)
            return y, eqxi.unvmap_max((x * 10).astype(int))

        return jax.lax.scan(step, jnp.zeros(()), xs)

    xs = jnp.asarray(np.random.default_rng(0).normal(size=(4, 6)), jnp.float32)
    for g in (f, jax.vmap(f)):
        with onescan.engine("native"):
            onescan.install()
            try:
                native = jax.jit(lambda xs, g=g: g(xs))(xs if g is not f else xs[0])
            finally:
                onescan.uninstall()
        stock = jax.jit(lambda xs, g=g: g(xs))(xs if g is not f else xs[0])
        assert_same(native, stock)


def test_marks_are_left_out() -> None:
    """A value that must not be batched or differentiated is that value."""

    def f(xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            x = eqxi.nonbatchable(eqxi.nondifferentiable_backward(x))
            return carry + x, eqxi.nontraceable(carry)

        return onescan.scan(step, 0.0, xs)

    with onescan.engine("native"):
        native = f(jnp.arange(3.0))
    assert_same(native, jax.lax.scan(lambda c, x: (c + x, c), 0.0, jnp.arange(3.0)))


def _solve(matrix: Any, vector: Any) -> list[Any]:
    return [jnp.linalg.solve(matrix, vector)]


#: as Lineax makes the primitive of its solvers
LINEAR_SOLVE = eqxi.create_vprim(
    "linear_solve",
    _solve,
    lambda matrix, vector: [vector],
    jvp=None,
    transpose=None,
)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_solutions_of_lineax(batch: tuple[int, ...]) -> None:
    matrix = jnp.eye(2, dtype="float32") * 2 + 0.5

    def step(c: Any, x: Any) -> Any:
        (solution,) = LINEAR_SOLVE.bind(matrix + x, c)
        return solution, solution.sum()

    run = lambda scan: lambda c, xs: scan(step, c, xs)
    f, g = run(onescan.scan), run(jax.lax.scan)
    if batch:
        f, g = jax.vmap(f, in_axes=(0, None)), jax.vmap(g, in_axes=(0, None))
    c, xs = jnp.ones((*batch, 2)), jnp.linspace(0.0, 1.0, 5, dtype="float32")
    with onescan.engine("native"):
        native = jax.jit(f)(c, xs)
    assert_same(native, jax.jit(g)(c, xs), ulps=16)
