"""Carries that are renewed where they stand, and those that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from jax import lax
from jax.extend.core import Var
from kernels import by_kernel, by_xla, inputs_of, loop_in, plan_of

from onescan.emit.body import ordered
from onescan.targets.cpu import current

N, STEPS = 96, 3
Step = Callable[..., Any]

#: a step of carries of N x N numbers and an x, and how often it stores a carry
STEPS_AND_STORES: dict[str, tuple[int, Step, int]] = {
    "pointwise": (1, lambda c, x: ((c[0] * 0.5 + x,), ()), 1),
    "read by a product": (1, lambda c, x: (((n := c[0] * x + 1),), n @ n[0]), 1),
    "also a y": (1, lambda c, x: (((n := jnp.sin(c[0]) * x),), n), 2),
    "the old one is a y": (1, lambda c, x: ((c[0] * 0.5 + x,), c[0] * 2), 2),
    "the old one is needed later": (
        1,
        lambda c, x: (((n := c[0] * x + 1),), c[0].T + n @ n),
        5,
    ),
    "moved": (1, lambda c, x: ((c[0].T * 0.5 + x,), ()), 2),
    "partly moved": (1, lambda c, x: ((c[0] + c[0][::-1] * x,), ()), 2),
    "scaled, and a row set": (
        1,
        lambda c, x: (((c[0] * 0.5 + x).at[3].set(c[0][5]),), ()),
        1,
    ),
    "scaled, and half of it set": (
        1,
        lambda c, x: (((c[0] * 0.5 + x).at[:48].set(c[0][48:][::-1]),), ()),
        2.5,
    ),
    "turned round": (2, lambda c, x: ((c[1] * x, c[0] + 1), ()), 4),
    "one after the other": (2, lambda c, x: ((c[0] * x, c[0] + c[1]), ()), 2),
    "a value for both": (2, lambda c, x: ((n := c[0] * x + c[1], n), ()), 2),
    "one for all lanes beside one of theirs": (
        2,
        lambda c, x: ((c[0] * x + c[0][:3, :3].sum(), c[1] * 0.5 + x), ()),
        2,
    ),
    "an inner loop": (
        1,
        lambda c, x: (
            lax.scan(lambda s, _: ((s[0] * 0.5 + x,), ()), (c[0],), length=8)[0],
            (),
        ),
        8,
    ),
    "a loop fills a row": (
        1,
        lambda c, x: (
            lax.fori_loop(0, 8, lambda i, s: (s[0].at[i, 1].add(s[0][2, i] * x),), c),
            (),
        ),
        0,
    ),
    "a loop reads the old one": (
        1,
        lambda c, x: (
            lax.fori_loop(0, 8, lambda i, s: (s[0].at[i, 1].add(c[0][i, 1]),), c),
            (),
        ),
        2,
    ),
    "a loop goes on with a row": (
        1,
        lambda c, x: (
            (lax.while_loop(lambda s: s[0, 0] < 9, lambda s: s.at[0].add(1.0), c[0]),),
            c[0][1].sum() + x,
        ),
        0,
    ),
    "a branch changes it": (
        1,
        lambda c, x: (
            (lax.cond(c[0][0, 1] > 0, lambda t: t.at[3, 1].set(x), lambda t: t, c[0]),),
            (),
        ),
        0,
    ),
    "a branch with a loop changes it": (
        1,
        lambda c, x: (
            (
                lax.cond(
                    x > 0,
                    lambda t: t.at[3].multiply(2.0),
                    lambda t: lax.fori_loop(0, 5, lambda i, t: t.at[i].add(x), t),
                    c[0],
                ),
            ),
            (),
        ),
        0,
    ),
    "a branch gives back the old one too": (
        2,
        lambda c, x: (
            lax.cond(
                x > 0,
                lambda t, u: (t.at[3].set(u[1]), t),
                lambda t, u: (u, u.at[4].set(t[0] + x)),
                *c,
            ),
            (),
        ),
        7,
    ),
}


@pytest.mark.parametrize("name", STEPS_AND_STORES)
def test_carries_are_renewed_in_place_where_that_is_right(name: str) -> None:
    count, step, stores = STEPS_AND_STORES[name]
    init = tuple(jnp.zeros((N, N), "float32") for _ in range(count))
    xs = jnp.zeros((STEPS,), "float32")
    loop = loop_in(lambda c, xs: lax.scan(step, c, xs), init, xs)
    plan, inputs = plan_of(loop), inputs_of(loop)
    assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=512)
    profile = current().build(plan).profile
    assert profile is not None
    written = sum(
        n * _count(kind) for (what, kind), n in profile.runs.items() if what == "store"
    )
    # tiles of a whole vector may be more than there are lanes
    lanes = plan.tiles * prod(lane.extent * lane.blocks for lane in plan.lanes)
    padded = lanes / prod(lane.size for lane in plan.lanes)
    each = written * plan.tiles / STEPS / N**2 / padded
    # the first values are put in, and the last ones out, once in all steps
    assert each == pytest.approx(stores + 2 * count / STEPS, abs=0.7), each


def _count(kind: str) -> int:
    return int(kind[1:].split()[0]) if kind.startswith("<") else 1


def test_made_up_inputs_differ() -> None:
    """The values above are no zeros, which would hide a value read too late."""
    step = lambda c, x: (c + x, c)
    loop = loop_in(lambda c, x: lax.scan(step, c, x), jnp.float32(1), jnp.ones(3))
    assert np.ptp(inputs_of(loop)[1]) > 0


def test_two_updates_of_a_value_that_is_read_after_one() -> None:
    """Each update waits for readers of the old value, but not for each other."""

    def step(c: Any, x: Any) -> Any:
        first = c.at[x % 3].add(1.0)
        return jnp.tanh(c.at[x].add(1.0)), first * c

    args = jnp.linspace(-1.0, 1.0, 9), jnp.arange(4)
    loop = loop_in(lambda c, x: lax.scan(step, c, x), *args)
    for early in (False, True):
        known = {*loop.body.jaxpr.invars}
        for eqn in ordered(loop.body.jaxpr, early):
            assert {v for v in eqn.invars if isinstance(v, Var)} <= known
            known |= {*eqn.outvars}
    plan, inputs = plan_of(loop), inputs_of(loop)
    assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=16)


def test_readers_that_are_larger_by_far_are_not_put_away() -> None:
    """A loop inside could have the carry's memory, but for a matrix made of it."""
    n = 200

    def step(c: Any, x: Any) -> Any:
        matrix = c[:, None] * c
        again = lambda s: (s[0] < 5) & (jnp.max(s[1]) > 0.2)
        _, small = lax.while_loop(again, lambda s: (s[0] + 1, s[1] * 0.6), (0, c))
        return 0.9 * small + x, matrix.sum()

    loop = loop_in(lambda c, x: lax.scan(step, c, x), jnp.ones(n), jnp.ones(3))
    plan, inputs = plan_of(loop), inputs_of(loop)
    profile = current().build(plan).profile
    assert profile is not None
    assert profile.held < n * n
    assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=64)
