"""Transformations beyond the table's: second derivatives, axes, rules, memory."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from jax.test_util import check_grads

import onescan
from onescan.api import reference

W = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)) * 0.5, jnp.float32)
XS = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)), jnp.float32)
H = jnp.asarray([0.1, -0.2, 0.3], jnp.float32)

ORACLES = pytest.mark.parametrize("oracle", [jax.lax.scan, reference.scan])


def rnn(scan, w, h, xs):
    def step(h, x):
        h = jnp.tanh(w @ h + x)
        return h, h.sum()

    return scan(step, h, xs)


def loss(scan, w, h, xs):
    h, ys = rnn(scan, w, h, xs)
    return (h**2).sum() + jnp.sin(ys).sum()


DERIVATIVES = {
    "grad": jax.grad,
    "value_and_grad": jax.value_and_grad,
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "hessian": jax.hessian,
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "reverse over reverse": lambda f: jax.jacrev(jax.jacrev(f)),
    "reverse over forward": lambda f: jax.jacrev(jax.jacfwd(f)),
}


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES.keys())
@ORACLES
def test_derivatives_by_what_f_closes_over(derivative, oracle):
    def of(scan):
        return jax.jit(derivative(lambda w: loss(scan, w, H, XS[:3])))(W)

    assert_same(of(onescan.scan), of(oracle), rounding=4, weak_types=False)


def test_derivatives_by_finite_differences():
    with jax.enable_x64(True):
        wide = [np.asarray(a, np.float64) for a in (W, H, XS)]
        check_grads(functools.partial(loss, onescan.scan), wide, 2, ["fwd", "rev"])


def test_linearize_and_vjp():
    def both(scan):
        value, pull = jax.vjp(functools.partial(rnn, scan), W, H, XS)
        _, push = jax.linearize(functools.partial(rnn, scan), W, H, XS)
        return pull(value), push(W, H, XS)

    assert_same(both(onescan.scan), both(jax.lax.scan), rounding=4)


AXES = [
    ((None, 0, None), 0),
    ((None, None, 1), 0),
    ((0, None, None), 0),
    ((2, 1, 0), 0),
    ((None, 0, 2), 1),
    ((0, 0, 0), (1, 0)),
]


@pytest.mark.parametrize(("in_axes", "out_axes"), AXES)
def test_vmap_over_any_axes(in_axes, out_axes):
    rng = np.random.default_rng(2)

    def batched(x, axis):
        if axis is None:
            return x
        return jnp.asarray(rng.normal(size=np.insert(x.shape, axis, 2)), x.dtype)

    args = [batched(x, axis) for x, axis in zip((W, H, XS), in_axes, strict=True)]

    def of(scan):
        run = jax.vmap(functools.partial(rnn, scan), in_axes, out_axes)
        return jax.jit(run)(*args)

    assert_same(of(onescan.scan), of(jax.lax.scan))
    one_by_one = [
        rnn(
            reference.scan,
            *(
                x if axis is None else jnp.take(x, i, axis)
                for x, axis in zip(args, in_axes, strict=True)
            ),
        )
        for i in range(2)
    ]
    carries, ys = zip(*one_by_one, strict=True)
    carry_axis, y_axis = out_axes if isinstance(out_axes, tuple) else (out_axes,) * 2
    expected = jnp.stack(carries, carry_axis), jnp.stack(ys, y_axis)
    assert_same(of(onescan.scan), expected)


def test_vmap_of_vmap_of_grad():
    def of(scan):
        value = lambda h, xs: loss(scan, W, h, xs)
        run = jax.vmap(jax.vmap(jax.grad(value), (0, None)), (None, 0))
        return jax.jit(run)(jnp.stack([H, -H]), jnp.stack([XS, 2 * XS, -XS]))

    assert_same(of(onescan.scan), of(jax.lax.scan), rounding=4)


def test_loops_three_deep():
    def of(scan):
        def deepest(c, x):
            return 0.9 * c + x, c

        def middle(c, x):
            c, ys = scan(deepest, c, x)
            return c, ys.sum()

        def outer(c, x):
            c, ys = scan(middle, c, x, reverse=True)
            return c, ys

        return jax.value_and_grad(
            lambda xs: scan(outer, 0.0, xs)[1].sum(),
        )(jnp.sin(jnp.arange(12.0)).reshape(2, 3, 2))

    assert_same(of(onescan.scan), of(jax.lax.scan))
    assert_same(of(onescan.scan), of(reference.scan), weak_types=False)


@pytest.mark.parametrize("where", ["body", "loop"])
@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.dots_saveable])
def test_checkpoint(where, policy):
    checkpoint = functools.partial(jax.checkpoint, policy=policy)

    def value(scan, w):
        def step(h, x):
            h = jnp.tanh(w @ h + x)
            return h, h.sum()

        if where == "body":
            return scan(checkpoint(step), H, XS)[1].sum()
        return checkpoint(lambda h: scan(step, h, XS)[1].sum())(H)

    of = lambda scan: jax.jit(jax.grad(functools.partial(value, scan)))(W)
    assert_same(of(onescan.scan), of(jax.lax.scan), rounding=4)


def test_custom_vjp_in_the_body():
    """A gradient that is not the derivative: only the custom rule gives it."""

    @jax.custom_vjp
    def clipped(x):
        return 2.0 * x

    clipped.defvjp(lambda x: (2.0 * x, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))

    def value(xs):
        return onescan.scan(lambda c, x: (c + clipped(x), None), 0.0, xs)[0]

    assert_same(jax.jit(jax.grad(value))(jnp.ones(3)), jnp.full(3, 0.1, jnp.float32))


def test_custom_jvp_in_the_body():
    @jax.custom_jvp
    def square(x):
        return x * x

    square.defjvp(lambda primals, tangents: (square(*primals), 7.0 * tangents[0]))

    def value(xs):
        return onescan.scan(lambda c, x: (c + square(x), None), 0.0, xs)[0]

    assert_same(jax.jit(jax.grad(value))(jnp.ones(3)), jnp.full(3, 7.0, jnp.float32))
    assert_same(jax.jit(jax.jacfwd(value))(jnp.ones(3)), jnp.full(3, 7.0, jnp.float32))


def test_a_loop_with_its_own_derivative():
    @jax.custom_vjp
    def total(xs):
        return onescan.scan(lambda c, x: (c + x, None), 0.0, xs)[0]

    total.defvjp(
        lambda xs: (total(xs), xs), lambda xs, g: (g * 10 * jnp.ones_like(xs),)
    )
    assert_same(jax.grad(total)(jnp.ones(3)), jnp.full(3, 10.0, jnp.float32))


def test_disable_jit_runs_the_loop_in_python():
    steps = []

    def f(c, x):
        steps.append((int(c), int(x["i"])))
        return c + x["i"], {"c": c}

    xs = {"i": jnp.arange(1, 4)}
    with jax.disable_jit():
        carry, ys = onescan.scan(f, jnp.int32(0), xs, reverse=True)
    assert steps == [(0, 3), (3, 2), (5, 1)]
    assert int(carry) == 6
    assert ys["c"].tolist() == [5, 3, 0]


def test_disable_jit_with_zero_steps():
    """The one thing that jax.lax.scan refuses there."""

    def f(c, x):
        return c + x, (c, jnp.stack([x, x]))

    expected = jax.lax.scan(f, jnp.float32(1), jnp.zeros(0))
    with jax.disable_jit():
        result = onescan.scan(f, jnp.float32(1), jnp.zeros(0))
    assert_same(result, expected)


def test_donated_arguments():
    def run(carry, xs):
        return onescan.scan(lambda c, x: (0.5 * c + x, None), carry, xs)[0]

    donating = jax.jit(run, donate_argnums=0)
    carry, xs = jnp.zeros((64, 3)), jnp.ones((4, 64, 3))
    expected = run(carry, xs)
    for _ in range(2):
        given = carry + 0.0
        assert_same(donating(given, xs), expected)
        assert given.is_deleted()


def test_inside_while_cond_and_map():
    def total(xs):
        return onescan.scan(lambda c, x: (c + x, None), 0.0, xs)[0]

    xs = jnp.arange(4.0)
    doubled = jax.lax.while_loop(lambda v: v < 50, lambda v: v + total(xs), 0.0)
    assert float(doubled) == 54.0
    assert float(jax.lax.cond(xs[1] > 0, total, lambda xs: -1.0, xs)) == 6.0
    assert jax.lax.map(total, jnp.stack([xs, 2 * xs])).tolist() == [6.0, 12.0]


def test_ahead_of_time():
    compiled = jax.jit(functools.partial(rnn, onescan.scan)).lower(W, H, XS).compile()
    assert_same(compiled(W, H, XS), rnn(jax.lax.scan, W, H, XS))


def test_leaks_are_not_made():
    with jax.checking_leaks():
        assert_same(
            jax.jit(functools.partial(rnn, onescan.scan))(W, H, XS),
            rnn(jax.lax.scan, W, H, XS),
        )
