"""Loops in every container, of every length, in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from table import Problem, case, normal


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_dataclass
@dataclass
class Body:
    position: Any
    velocity: Any


@case()
def dict_carry(rng):
    def f(c, x):
        c = {"mean": 0.9 * c["mean"] + 0.1 * x, "peak": jnp.maximum(c["peak"], x)}
        return c, {"gap": c["peak"] - c["mean"]}

    return Problem(f, {"mean": jnp.zeros(2), "peak": jnp.zeros(2)}, normal(rng, 5, 2))


@case()
def nested_named_tuples(rng):
    def f(c, x):
        inner = Pair(c.right.right + x.left, c.right.left)
        return Pair(c.left + x.right.sum(), inner), Pair(inner, [c.left])

    init = Pair(jnp.float32(0), Pair(jnp.float32(1), jnp.float32(2)))
    return Problem(f, init, Pair(normal(rng, 5), normal(rng, 5, 2)))


@case()
def dataclass_carry(rng):
    def f(body, force):
        velocity = 0.9 * body.velocity + force
        return Body(body.position + velocity, velocity), Body(velocity, force)

    return Problem(f, Body(jnp.zeros(3), jnp.ones(3)), normal(rng, 5, 3))


@case()
def lists_and_tuples(rng):
    def f(c, x):
        (a, [b]), x = c, x[0]
        return (b + x, [a * 0.5]), [(), (a, [b])]

    return Problem(f, (jnp.float32(1), [jnp.float32(2)]), [normal(rng, 5)])


@case()
def none_leaves(rng):
    def f(c, x):
        total = c["total"] + x["value"]
        return {"total": total, "key": c["key"]}, (None, total, {"nothing": None})

    init = {"total": jnp.float32(0), "key": None}
    return Problem(f, init, {"value": normal(rng, 5), "mask": None})


@case()
def empty_carry(rng):
    def f(c, x):
        return c, jnp.sin(x) * 2

    return Problem(f, (), normal(rng, 5, 2))


@case()
def no_ys(rng):
    def f(c, x):
        return 0.5 * c + x, None

    return Problem(f, jnp.zeros(2), normal(rng, 5, 2))


@case()
def carry_goes_through(rng):
    """Part of the carry never changes, x and carry come out as they are."""

    def f(c, x):
        scale, total = c
        return (scale, total + scale * x), (x, total, jnp.float32(3))

    return Problem(f, (jnp.float32(0.3), jnp.float32(0)), normal(rng, 5))


@case()
def swapped_carries(rng):
    def f(c, x):
        a, b = c
        return (b, a + x), a

    return Problem(f, (jnp.float32(1), jnp.float32(2)), normal(rng, 6))


@case()
def reversed_with_containers(rng):
    def f(c, x):
        c = 0.5 * c + x["a"] * x["b"].sum()
        return c, {"c": c, "a": x["a"]}

    xs = {"a": normal(rng, 6), "b": normal(rng, 6, 2)}
    return Problem(f, jnp.float32(0), xs, {"reverse": True})


@case()
def length_zero(rng):
    def f(c, x):
        return c + x.sum(), (c, x, jnp.int32(1))

    return Problem(f, jnp.float32(rng.random()), jnp.zeros((0, 3)))


@case()
def length_one(rng):
    def f(c, x):
        return 0.5 * c + x, c - x

    return Problem(f, normal(rng, 2), normal(rng, 1, 2))


@case()
def length_and_xs(rng):
    def f(c, x):
        return c * x, c

    return Problem(f, jnp.float32(1), normal(rng, 4), {"length": 4})


@case()
def unrolled_by_two(rng):
    def f(c, x):
        return 0.5 * c + x, c

    return Problem(f, jnp.float32(1), normal(rng, 5), {"unroll": 2})


@case()
def unrolled_in_full(rng):
    def f(c, x):
        return 0.5 * c + x, c

    return Problem(f, jnp.zeros(2), normal(rng, 5, 2), {"unroll": True})
