"""Which axes of a loop are lanes, and that they are.

A lane is written as the dimensions that lie along it, of constants (k), carries (c),
xs (x) and ys (y): "c0:0 y0:1" is dimension 0 of the first carry and 1 of the first y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from fuzz.check import inputs, random_batch
from jax import lax
from jax.extend.core import Var
from kernels import by_kernel, by_xla, inputs_of, loop_in, plan_of, stock

from onescan.loop import Loop
from onescan.plan.lanes import lane_axes


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def named(loop: Loop) -> dict[str, Any]:
    """The inputs and ys of a loop by name."""
    jaxpr, first_x = loop.body.jaxpr, loop.num_consts + loop.num_carry
    groups = {
        "k": jaxpr.invars[: loop.num_consts],
        "c": jaxpr.invars[loop.num_consts : first_x],
        "x": jaxpr.invars[first_x:],
        "y": jaxpr.outvars[loop.num_carry :],
    }
    return {f"{g}{i}": v for g, vs in groups.items() for i, v in enumerate(vs)}


def lanes_of(loop: Loop) -> set[str]:
    return {
        " ".join(
            f"{name}:{axis[var][0]}"
            for name, var in named(loop).items()
            if isinstance(var, Var) and var in axis
        )
        for axis in lane_axes(loop)
    } - {""}


def scan(
    step: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = float
) -> Loop:
    """The loop of a step with a carry and, from the second shape on, xs."""
    args = [np.ones(shape, dtype) for shape in shapes]
    stacked = [np.stack([x, x]) for x in args[1:]]
    return loop_in(lambda c, *xs: lax.scan(step, c, xs, length=2), args[0], *stacked)


def vmapped(
    step: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = float
) -> Loop:
    """The same for five lanes, which come first in the carry and second in xs."""
    args = [np.ones((5, *shape), dtype) for shape in shapes]
    stacked = [np.stack([x, x]) for x in args[1:]]
    loop = lambda c, *xs: lax.scan(step, c, xs, length=2)
    axes = (0, *[1] * len(stacked))
    return loop_in(
        lambda c, *xs: jax.vmap(loop, axes, (0, 1))(c, *xs), args[0], *stacked
    )


W = np.ones((3, 3))
READOUT = np.ones((7, 3))
INTS = {"dtype": np.int32}
ALONG = "c0:0 x0:0 y0:0"

TABLE: dict[str, tuple[Callable[[], Loop], set[str]]] = {
    "elementwise": (lambda: scan(lambda c, x: (c + x[0], c * 2), (5,), (5,)), {ALONG}),
    "two axes": (
        lambda: scan(lambda c, x: (c + x[0], c), (4, 3), (4, 3)),
        {ALONG, "c0:1 x0:1 y0:1"},
    ),
    "scalar": (lambda: scan(lambda c, x: (c + x[0], c), (), ()), set()),
    "size one": (lambda: scan(lambda c, x: (c + x[0], c), (1,), (1,)), set()),
    "sum": (lambda: scan(lambda c, x: (c + 1, c.sum(1)), (4, 3)), {"c0:0 y0:0"}),
    "sum into the carry": (
        lambda: scan(lambda c, x: (c + x[0].sum(), c), (), (5,)),
        set(),
    ),
    "a row for all": (
        lambda: scan(lambda c, x: (c + x[0], c), (4, 3), (3,)),
        {"c0:0 y0:0", "c0:1 x0:0 y0:1"},
    ),
    "transposed y": (
        lambda: scan(lambda c, x: (c + 1, c.T), (4, 3)),
        {"c0:0 y0:1", "c0:1 y0:0"},
    ),
    "transposed carry": (lambda: scan(lambda c, x: (c.T, ()), (3, 3)), set()),
    "reversed": (lambda: scan(lambda c, x: (c[::-1], c), (4, 3)), {"c0:1 y0:1"}),
    "shifted": (
        lambda: scan(lambda c, x: (jnp.roll(c, 1, 1), c), (4, 3)),
        {"c0:0 y0:0"},
    ),
    "sorted": (lambda: scan(lambda c, x: (jnp.sort(c, 0), c), (4, 3)), {"c0:1 y0:1"}),
    "cumulative": (lambda: scan(lambda c, x: (jnp.cumsum(c, 1), ()), (4, 3)), {"c0:0"}),
    "argmax": (
        lambda: scan(lambda c, x: (c + 1, jnp.argmax(c, 0)), (4, 3)),
        {"c0:1 y0:0"},
    ),
    "outer sum": (lambda: scan(lambda c, x: (c + 1, c[:, None] + c), (4,)), set()),
    "reshape, a dimension of one position": (
        lambda: scan(lambda c, x: (c + 1, c.reshape(2, 1, 4)[:, 0]), (2, 4)),
        {"c0:0 y0:0", "c0:1 y0:1"},
    ),
    "reshape": (
        lambda: scan(lambda c, x: (c + 1, c.reshape(4, 6)), (4, 2, 3)),
        {"c0:0 y0:0"},
    ),
    "concatenated": (
        lambda: scan(lambda c, x: (c + 1, jnp.concatenate([c, c], 1)), (4, 3)),
        {"c0:0 y0:0"},
    ),
    "constant array": (
        lambda: scan(lambda c, x: (c * np.arange(3.0), ()), (4, 3)),
        {"c0:0", "k0:0 c0:1"},
    ),
    "matrix times vector": (lambda: scan(lambda c, x: (W @ c, c), (3,)), set()),
    "readout": (lambda: scan(lambda c, x: (c + 1, READOUT @ c), (3,)), {"k0:0 y0:0"}),
    "matrix times matrix": (lambda: scan(lambda c, x: (W @ c, ()), (3, 4)), {"c0:1"}),
    "vmapped matvec": (lambda: vmapped(lambda c, x: (W @ c, c), (3,)), {"c0:0 y0:0"}),
    "vmapped product": (
        lambda: vmapped(lambda c, x: (x[0] @ c, c.sum()), (3,), (3, 3)),
        {ALONG},
    ),
    "vmapped lookup": (
        lambda: vmapped(lambda c, x: (c + 1, c[x[0][0]]), (4,), (2,), **INTS),
        {ALONG},
    ),
    "shared table": (
        lambda: vmapped(
            lambda c, x: (jnp.asarray(np.arange(9, dtype=np.int32))[c], c), (), **INTS
        ),
        {"c0:0 y0:0"},
    ),
    "vmapped update": (
        lambda: vmapped(lambda c, x: (c.at[x[0]].add(1), ()), (4,), (), **INTS),
        {"c0:0 x0:0"},
    ),
    "update of rows": (
        lambda: scan(lambda c, x: (c.at[x[0][0]].set(1), ()), (4, 3), (2,), **INTS),
        {"c0:1"},
    ),
    "slice": (
        lambda: vmapped(lambda c, x: (c + 1, lax.dynamic_slice(c, (1,), (2,))), (4,)),
        {"c0:0 y0:0"},
    ),
    "nested scan": (
        lambda: vmapped(
            lambda c, x: lax.scan(lambda s, t: (s + t, s), c, x[0]), (), (4,)
        ),
        {ALONG},
    ),
    "nested loop": (
        lambda: scan(
            lambda c, x: (lax.fori_loop(0, 3, lambda i, s: s * 2, c), c), (5,)
        ),
        {"c0:0 y0:0"},
    ),
    "while": (
        lambda: scan(
            lambda c, x: (
                lax.while_loop(
                    lambda s: s[1] < x[0], lambda s: (s[0] * 2, s[1] + 1), (c, 0.0)
                )[0],
                c,
            ),
            (5,),
            (),
        ),
        {"c0:0 y0:0"},
    ),
    "while that asks the lanes": (
        lambda: scan(
            lambda c, x: (lax.while_loop(lambda s: s.sum() < 3, lambda s: s + 1, c), c),
            (5,),
        ),
        set(),
    ),
    "while for each lane": (
        lambda: vmapped(
            lambda c, x: (lax.while_loop(lambda s: s < x[0], lambda s: s + 1, c), c),
            (),
            (),
        ),
        {ALONG},
    ),
    "while for each lane, of rows": (
        lambda: vmapped(
            lambda c, x: (
                lax.while_loop(lambda s: s.sum() < 9, lambda s: s[::-1] + 1, x[0]),
                c,
            ),
            (3,),
            (3,),
        ),
        {ALONG},
    ),
    "while for each lane, in a while": (
        lambda: vmapped(
            lambda c, x: (
                lax.while_loop(
                    lambda s: s < 9,
                    lambda s: (
                        lax.while_loop(lambda r: r < x[0], lambda r: r + 1, s) + 1
                    ),
                    c,
                ),
                c,
            ),
            (),
            (),
        ),
        {ALONG},
    ),
    "while for each position, which then meet": (
        lambda: scan(
            lambda c, x: (
                jax.vmap(lambda r: lax.while_loop(lambda s: s < 9, lambda s: s + 1, r))(
                    c
                )[::-1],
                c,
            ),
            (5,),
        ),
        set(),
    ),
    "cond": (
        lambda: scan(
            lambda c, x: (lax.cond(x[0] > 0, jnp.sin, lambda s: s * 2, c), c), (5,), ()
        ),
        {"c0:0 y0:0"},
    ),
    "cond that reverses": (
        lambda: scan(
            lambda c, x: (lax.cond(x[0] > 0, jnp.sin, jnp.flip, c), ()), (5,), ()
        ),
        set(),
    ),
    "keys": (
        lambda: vmapped(
            lambda c, x: (jax.random.split(c)[0], jax.random.uniform(c)),
            (2,),
            dtype=np.uint32,
        ),
        {"c0:0 y0:0"},
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_lanes(name: str) -> None:
    make, expected = TABLE[name]
    assert lanes_of(make()) == expected


def permuted(x: Any, var: Any, axis: Any, order: Any, stacked: bool) -> Any:
    if not isinstance(var, Var) or var not in axis:
        return x
    return np.take(x, order, axis[var][0] + stacked)


def counts_positions(loop: Loop, axis: Any) -> bool:
    """Whether positions along the axis are numbered, so that their order matters."""
    made = {
        v for e in loop.body.jaxpr.eqns for v in e.outvars if "iota" in e.primitive.name
    }
    return not made.isdisjoint(axis)


def random_loops() -> list[Loop]:
    found = []
    for seed in range(500, 520):
        batch = random_batch(seed, 2)
        for program, (consts, init, xs) in zip(
            batch.programs, inputs(batch), strict=True
        ):
            f = lambda k, c, x, p=program: lax.scan(
                p.body(k), c, x, length=batch.length
            )
            if batch.mode == "vmap":
                f = jax.vmap(f, (None, 0, 1), (0, 1))
            found.append(loop_in(f, consts, init, xs))
    return found


def test_lanes_are_independent() -> None:
    """Positions in another order give the same results in that order."""
    tried = 0
    for loop in [*(make() for make, _ in TABLE.values()), *random_loops()]:
        axes = [a for a in lane_axes(loop) if not counts_positions(loop, a)]
        if not axes:
            continue
        run, args = stock(loop), inputs_of(loop)
        args = [x % 5 if x.dtype.kind in "iu" and x.ndim else x for x in args]
        results = run(*args)
        first_x = loop.num_consts + loop.num_carry
        invars, outvars = loop.body.jaxpr.invars, loop.body.jaxpr.outvars
        outs = [*invars[loop.num_consts : first_x], *outvars[loop.num_carry :]]
        for axis in axes:
            var, (dim,) = next(iter(axis.items()))
            order = np.random.default_rng(tried).permutation(var.aval.shape[dim])
            moved = [
                permuted(x, v, axis, order, i >= first_x)
                for i, (x, v) in enumerate(zip(args, invars, strict=True))
            ]
            expected = [
                permuted(np.asarray(r), v, axis, order, i >= loop.num_carry)
                for i, (r, v) in enumerate(zip(results, outs, strict=True))
            ]
            assert_same([np.asarray(x) for x in run(*moved)], expected, rounding=16)
            tried += 1
    assert tried > 40


def test_two_axes_in_one_lane_stay_side_by_side_behind_the_vectors() -> None:
    """Two axes that are cut as one, of a value whose vectors lie along a third."""

    def step(state, row):
        removed = jnp.einsum("bhvk,bhk->bhv", state, row)
        return state * row[:, :, None] - removed[..., None], removed

    state, rows = (
        jnp.ones((3, 4, 16, 5), "float32"),
        jnp.ones((6, 3, 4, 5), "float32"),
    )
    loop = loop_in(lambda c, xs: lax.scan(step, c, xs), state, rows)
    plan, inputs = plan_of(loop), inputs_of(loop)
    assert sorted(lane.tiles for lane in plan.lanes) == [1, 1, 12]
    assert plan.layouts[0][:2] == (0, 1)
    assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=64)


def test_many_small_vectors_with_shared_matrices_are_lanes() -> None:
    """Filters that share their covariances, each with a solution of its own."""
    hidden, seen = np.eye(4, dtype="float32") * 0.9, np.ones((2, 4), "float32")

    def step(state, row):
        cov, mean = state
        spread = (seen @ cov).sum(1)
        factor = jnp.linalg.cholesky(
            jnp.outer(spread, spread) + jnp.eye(2, dtype="float32")
        )
        residual = row - seen @ mean
        scaled = jax.scipy.linalg.solve_triangular(factor, residual, lower=True)
        mean = hidden @ (mean + 0.1 * seen.T @ scaled)
        return (hidden @ cov @ hidden.T + 0.1, mean), (mean, scaled)

    def run(cov, mean, rows):
        return lax.scan(step, (cov, mean), rows)

    batch = jax.vmap(run, in_axes=(None, 0, 0))
    types = [jax.ShapeDtypeStruct(s, "float32") for s in [(4, 4), (300, 4)]]
    loop = loop_in(batch, *types, jax.ShapeDtypeStruct((300, 5, 2), "float32"))
    plan, inputs = plan_of(loop), [0.1 * x for x in inputs_of(loop)]
    assert plan.vector is not None
    assert plan.vector.size == 300
    assert all(np.isfinite(x).all() for x in by_xla(loop, inputs))
    assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=64)


@pytest.mark.parametrize("lanes", [3, 7, 12, 20])
def test_lanes_that_do_not_fill_their_vectors_wait_together(lanes) -> None:
    """Not one vector after the other, each through all steps."""
    step = lambda c, x: (jnp.tanh(c * 0.9 + x), None)
    start, xs = jnp.linspace(0.1, 0.9, lanes, dtype="float32"), jnp.ones(9, "float32")
    loop = loop_in(lambda c, xs: lax.scan(step, c, xs), start, xs)
    plan, inputs = plan_of(loop), inputs_of(loop)
    assert plan.tiles == 1
    assert_same(by_kernel(plan, inputs), by_xla(loop, inputs), rounding=8)
