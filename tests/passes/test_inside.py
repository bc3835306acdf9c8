"""Loops inside a loop: tables are updated where they lie, invariants computed once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from compare import assert_same
from engines import run
from jax import lax

import onescan
from onescan import compat
from onescan.loop import Loop
from onescan.passes.common import common
from onescan.passes.inline import flatten
from onescan.passes.inside import inside
from onescan.passes.invariants import invariants

N = 12


def filled(costs: Any) -> Any:
    """A table of least costs, filled cell by cell, as soft as needs a gradient."""

    def cell(i: Any, j: Any, t: Any) -> Any:
        near = jnp.stack([t[i - 1, j - 1], t[i - 1, j], t[i, j - 1]])
        return t.at[i, j].set(costs[i - 1, j - 1] - jax.nn.logsumexp(-near))

    def row(i: Any, t: Any) -> Any:
        return lax.fori_loop(1, N + 1, lambda j, t: cell(i, j, t), t)

    return lax.fori_loop(1, N + 1, row, jnp.zeros((N + 1, N + 1)))[N, N]


def loops_in(f: Any, *args: Any) -> list[Loop]:
    """The loops of a function, without calls in them."""
    jaxpr = flatten(jax.make_jaxpr(f)(*args)).jaxpr
    made = {"scan": compat.loop_of, "while": compat.while_loop_of}
    found = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in made]
    return [made[eqn.primitive.name](eqn.params) for eqn in found]


def names_in(jaxpr: Any) -> list[tuple[str, int]]:
    """All equations, those of loops inside included, and how large they are."""
    found = []
    for eqn in jaxpr.eqns:
        found.append((eqn.primitive.name, max(v.aval.size for v in eqn.outvars)))
        for param in eqn.params.values():
            if isinstance(param, jax.extend.core.ClosedJaxpr):
                found += names_in(param.jaxpr)
    return found


def test_gradients_of_tables_update_them() -> None:
    costs = jnp.linspace(0, 1, N * N).reshape(N, N)
    back = loops_in(jax.grad(filled), costs)[-1]
    split = inside(back)
    assert split is not None
    table = (N + 1) ** 2
    sums = [n for n, size in names_in(back.body.jaxpr) if size == table]
    left = [n for n, size in names_in(split.loop.body.jaxpr) if size == table]
    assert "add_any" in sums
    assert "add_any" not in left


def test_gradients_of_tables() -> None:
    costs = jnp.asarray(np.random.default_rng(0).random((N, N)), jnp.float32)
    both = [run(e, jax.value_and_grad(filled), costs) for e in ("native", "xla")]
    assert_same(*both, rounding=64)


def iterated(rewards: Any, start: Any) -> Any:
    """Rounds with much in them that no round changes."""

    def step(state: Any) -> Any:
        v, _, k = state
        gain = jnp.sort(jnp.exp(rewards), axis=1) @ jnp.eye(N) * 1e-3
        new = jnp.max(gain + 0.9 * v, axis=1)
        return new, jnp.abs(new - v).max(), k + 1

    again = lambda s: (s[1] > 1e-3) & (s[2] < 60)
    return lax.while_loop(again, step, (start, jnp.float32(1), 0))


ROUNDS = jnp.linspace(-1, 1, N * N, dtype=jnp.float32).reshape(N, N), jnp.zeros(N)


def test_invariants_of_while_loops() -> None:
    split = invariants(*loops_in(iterated, *ROUNDS))
    assert split is not None
    assert len(split.loop.const_avals) == 1, "what only they need is not passed on"
    inside_of_it = [name for name, _ in names_in(split.loop.body.jaxpr)]
    assert "while" in inside_of_it
    assert not {"sort", "exp", "dot_general"} & {*inside_of_it}
    assert any("once instead of in every round" in note for note in split.notes)
    both = [run(e, iterated, *ROUNDS) for e in ("native", "xla")]
    assert_same(*both, rounding=16)


def test_invariants_of_no_round_at_all() -> None:
    def never(x: Any) -> Any:
        step = lambda s: (s[0] + jnp.linalg.inv(x * 0) @ s[0], s[1] + 1)
        return lax.while_loop(lambda s: s[1] < 0, step, (jnp.ones(3), 0))

    both = [run(e, never, jnp.eye(3)) for e in ("native", "xla")]
    assert_same(*both)


def test_invariants_stay_where_they_are_cheap() -> None:
    def f(x: Any) -> Any:
        step = lambda s: (s[0] * jnp.broadcast_to(x[:1], (N,)), s[1] + 1)
        return lax.while_loop(lambda s: s[1] < 9, step, (x, 0))

    assert invariants(*loops_in(f, jnp.ones(N))) is None


def test_what_a_branch_is_given_twice() -> None:
    """A table that a branch is given, and sees around it, is one table."""

    def f(table: Any, xs: Any) -> Any:
        def step(t: Any, x: Any) -> Any:
            def change(given: Any) -> Any:
                best = lax.fori_loop(0, 5, lambda k, b: jnp.maximum(b, t[k] + x), x)
                return given.at[3].set(best)

            t = lax.cond(x > 0.5, change, lambda given: given, t)
            return t, t[3]

        return onescan.scan(step, table, xs)

    args = jnp.linspace(0, 1, 100), jnp.linspace(0, 1, 7)
    (loop,) = loops_in(f, *args)
    (cond,) = (eqn for eqn in loop.body.jaxpr.eqns if eqn.primitive.name == "cond")
    assert len({*map(id, cond.invars)}) == len(cond.invars)
    both = [run(e, f, *args) for e in ("native", "xla")]
    assert_same(*both)


def interpolated(x: Any, grid: Any, f: Any) -> Any:
    """Rounds that read `f` at fixed places: JAX writes the same index three times."""

    def round_(s: Any) -> Any:
        new = 0.5 * s[0] + 0.25 * jnp.interp(x, grid, s[0])
        return new, s[1] + 1

    return lax.while_loop(lambda s: s[1] < 5, round_, (f, 0))


INTERPOLATED = jnp.linspace(-0.3, 1.3, N), jnp.linspace(0, 1, N), jnp.arange(N) * 0.1


def test_equal_equations_of_while_loops_are_one() -> None:
    (loop,) = loops_in(interpolated, *INTERPOLATED)
    split = common(loop)
    assert split is not None
    reads = lambda loop: [n for n, _ in names_in(loop.body.jaxpr) if n == "gather"]
    assert len(reads(split.loop)) < len(reads(loop))
    assert common(split.loop) is None, "nothing is left to merge"
    both = [run(e, interpolated, *INTERPOLATED) for e in ("native", "xla")]
    assert_same(*both, rounding=8)
