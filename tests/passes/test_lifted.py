"""What the steps of loops inside compute alike, in front of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from engines import assert_engines_agree
from jax import lax
from passing import loop_of

from onescan.passes.lifted import lifted
from onescan.plan.work import equations

STATE = jnp.linspace(-1.0, 1.0, 5)
XS = jnp.linspace(-1.0, 1.0, 3 * 5).reshape(3, 5)


def sweeps(count: int, change: Any) -> Any:
    """A step in which a loop of so many steps runs."""

    def step(c: Any, x: Any) -> Any:
        return lax.fori_loop(0, count, lambda i, v: change(i, v, c, x), c), None

    return step


def in_a_while(c: Any, x: Any) -> Any:
    going = lambda s: s[1] < 4
    return lax.while_loop(going, lambda s: (s[0] / 2 + jnp.sin(x), s[1] + 1), (c, 0))[
        0
    ], None


def in_a_branch(c: Any, x: Any) -> Any:
    often, _ = sweeps(4, lambda i, v, c, x: v / 2 + jnp.sin(x))(c, x)
    return lax.cond(x[0] > 0, lambda: often, lambda: in_a_while(c, x)[0]), None


def in_two(c: Any, x: Any) -> Any:
    """One body, called twice."""
    run = jax.jit(sweeps(3, lambda i, v, c, x: v / 2 + jnp.sin(x)))
    return run(run(c, x)[0], 2 * x)[0], None


DEEP = sweeps(
    3, lambda i, v, c, x: sweeps(2, lambda j, w, v, x: w / 2 + jnp.sin(x))(v, x)[0]
)
STEPS = {
    "a function": sweeps(4, lambda i, v, c, x: v / 2 + jnp.sin(x)),
    "a matrix": sweeps(4, lambda i, v, c, x: v / 2 + jnp.tanh(jnp.outer(c, x)) @ v / 8),
    "no steps": sweeps(0, lambda i, v, c, x: v / 2 + jnp.sin(x)),
    "two deep": DEEP,
    "a while loop": in_a_while,
    "a branch": in_a_branch,
    "twice": in_two,
    "what changes with the step": sweeps(
        4, lambda i, v, c, x: v / 2 + jnp.sin(x) * jnp.cos(i * x)
    ),
}


def dear_inside(eqns: Any, depth: int = 0) -> int:
    """Sines and hyperbolic tangents in loops inside."""
    found = 0
    for eqn in eqns:
        found += depth > 0 and eqn.primitive.name in ("sin", "tanh")
        bodies = [
            v.jaxpr
            for v in jax.tree.leaves(list(eqn.params.values()))
            if hasattr(v, "jaxpr")
        ]
        deeper = depth + (eqn.primitive.name in ("scan", "while"))
        found += sum(dear_inside(body.eqns, deeper) for body in bodies)
    return found


@pytest.mark.parametrize("name", STEPS)
def test_computed_once(name: str) -> None:
    step = STEPS[name]
    assert_engines_agree(lambda c, xs: lax.scan(step, c, xs)[0], STATE, XS, ulps=64)
    loop, _ = loop_of(step, STATE, XS)
    assert name == "no steps" or dear_inside(loop.body.jaxpr.eqns)
    split = lifted(loop)
    assert split is not None
    assert not dear_inside(split.loop.body.jaxpr.eqns)
    assert lifted(split.loop) is None  # nothing is left to do


def test_what_might_run_for_long_stays() -> None:
    """A loop that a loop of no steps would not have run."""

    def endless(i: Any, v: Any, c: Any, x: Any) -> Any:
        return v + lax.while_loop(lambda s: s[0] < 1, lambda s: s * x, x)

    loop, _ = loop_of(sweeps(0, endless), STATE, XS)
    assert lifted(loop) is None
    assert any(eqn.primitive.name == "while" for eqn in equations(loop.body.jaxpr))


def test_what_is_cheap_or_large_stays() -> None:
    spread = lambda i, v, c, x: v / 2 + jnp.broadcast_to(x[0], v.shape)
    loop, _ = loop_of(sweeps(4, spread), STATE, XS)
    split = lifted(loop)
    assert split is None or "broadcast" in str(split.loop.body.jaxpr.eqns[-1])

    large = lambda i, v, c, x: v / 2 + jnp.tanh(jnp.outer(x, x)).sum() / v.size
    xs = jax.ShapeDtypeStruct((2, 1000), "float32")
    jaxpr = jax.make_jaxpr(lambda c, xs: lax.scan(sweeps(4, large), c, xs))
    assert jaxpr(xs.update(shape=(1000,)), xs)


def test_gradients_and_batches() -> None:
    def loss(c: Any, xs: Any) -> Any:
        change = lambda i, v, c, x: jnp.tanh(v / 2 + jnp.sin(x) @ jnp.outer(x, x))
        return lax.scan(sweeps(3, change), c, xs)[0].sum()

    assert_engines_agree(jax.grad(loss, (0, 1)), STATE, XS, ulps=1024)
    batch = jnp.stack([XS, 2 * XS, -XS])
    assert_engines_agree(jax.vmap(loss, (None, 0)), STATE, batch, ulps=1024)
