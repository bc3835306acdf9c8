"""A random loop of ordinary parts, as a function of its seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from random_parts import COMMON, NOT_REVERSIBLE, RARE, Pool

WAYS = ("forward", "forward", "grad", "vmap", "vmap grad", "jvp")
LIMIT = 2e7  # elements of carries, times steps


@dataclass(frozen=True)
class RandomLoop:
    seed: int
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    parts: tuple[str, ...]
    shape: str  # in a line

    def __str__(self) -> str:
        return f"{self.shape}; parts: {', '.join(self.parts)}"


@cache
def _numbers(number: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng((number, *shape))
    return rng.normal(0, 0.5, shape).astype("float32")


def constant(number: int, *shape: int) -> jax.Array:
    """The same numbers for the same shape; kept by NumPy, not by a trace."""
    return jnp.asarray(_numbers(number, *shape))


def random_loop(seed: int, keep: frozenset[int] | None = None) -> RandomLoop:
    """The loop of a seed, or what is left of it with only some of its parts."""
    r = random.Random(seed)
    a, b = r.choice((1, 3, 8, 32, 128, 512, 2048)), r.choice((2, 5, 16, 64, 200))
    way = r.choice(WAYS)
    batch = r.choice((2, 8, 64)) if "vmap" in way else 1
    shapes = [
        r.choice(((a, b), (a,), (b,), (), (b, a))) for _ in range(r.randint(1, 4))
    ]
    time = r.choice((30, 100, 300, 1000))
    while sum(np.prod(s) for s in shapes) * time * batch > LIMIT and time > 10:
        time //= 2
    has_key, has_count = r.random() < 0.4, r.random() < 0.5
    ring = r.choice((8, 32)) if r.random() < 0.2 else 0
    x_shape = r.choice((None, (), (a,), (b,), (a, b)))
    if x_shape and time * np.prod(x_shape) > LIMIT / 4:
        x_shape = ()
    counted = r.random() < 0.3  # xs are the numbers of the steps, too
    kinds = [
        r.choice(COMMON if r.random() < 0.5 else RARE) for _ in range(r.randint(2, 16))
    ]
    if "grad" in way:
        kinds = [k for k in kinds if k not in NOT_REVERSIBLE]
    seeds = [r.randrange(1 << 30) for _ in kinds]
    ending = r.randrange(1 << 30)
    reverse, outputs = r.random() < 0.25, r.randint(0, 3)
    chosen = [i for i in range(len(kinds)) if keep is None or i in keep]

    def step(carry, x):
        pool = Pool(constant, floats=list(carry["values"]))
        if x is not None:
            pool.add(*jax.tree.leaves(x))
        if has_key:
            pool.keys.append(carry["key"])
        if has_count:
            pool.add(carry["count"])
        if ring:
            pool.add(carry["ring"][carry["at"]])
        done = list(pool.floats)
        for i in chosen:
            kinds[i](pool, random.Random(seeds[i]))
        q = random.Random(ending)
        new = dict(carry)
        made = pool.floats[len(done) :] or pool.floats
        new["values"] = tuple(_updated(old, q.choice(made)) for old in carry["values"])
        if has_key:
            new["key"] = pool.keys[0]
        if has_count:
            grow = (
                1
                if q.random() < 0.5
                else 1 + jnp.abs(pool.floats[-1]).max().astype(int)
            )
            new["count"] = (carry["count"] + grow) % 1000
        if ring:
            row = _like(carry["ring"][0], q.choice(made))
            new["ring"] = carry["ring"].at[carry["at"]].set(row)
            new["at"] = (carry["at"] + 1) % ring
        ys = [q.choice(pool.floats + pool.ints) for _ in range(outputs)]
        ys = [y if y.size * time * batch < LIMIT else y.sum() for y in ys]
        if q.random() < 0.15:
            ys.append(jnp.full(carry["values"][0].shape, 0.5))
        return new, ys

    values = tuple(constant(10 + i, *s) for i, s in enumerate(shapes))
    rest: dict[str, Any] = {}
    if has_key:
        rest["key"] = jax.random.key(seed)
    if has_count:
        rest["count"] = jnp.int32(0)
    if ring:
        rest |= {"ring": constant(20, ring, b), "at": jnp.int32(0)}
    xs = None if x_shape is None else (constant(30, time, *x_shape),)
    if counted and xs is not None:
        xs = (*xs, jnp.arange(time))

    def loop(values, xs):
        init = rest | {"values": values}
        carry, ys = lax.scan(step, init, xs, length=time, reverse=reverse)
        return carry["values"], ys

    fn, args = _transformed(loop, way, batch, (values, xs))
    shape = (
        f"{way}{f' of {batch}' if batch > 1 else ''}, {time} steps"
        f"{' back' if reverse else ''}, carries {shapes}"
        f"{' key' if has_key else ''}{' count' if has_count else ''}"
        f"{f' ring {ring}' if ring else ''}, x {x_shape}{' +t' if counted else ''}"
    )
    return RandomLoop(seed, fn, args, tuple(kinds[i].__name__ for i in chosen), shape)


def _transformed(loop, way, batch, args):
    values, xs = args

    def loss(values, xs):
        leaves = jax.tree.leaves(loop(values, xs))
        floats = [v for v in leaves if jnp.issubdtype(v.dtype, jnp.floating)]
        return sum(jnp.mean(v**2) for v in floats)

    fn = jax.grad(loss) if "grad" in way else loop
    if way == "jvp":
        forward = lambda v, xs: jax.jvp(lambda v: loop(v, xs), (v,), (v,))[1][0]
        return forward, args
    if "vmap" in way:
        scales = 1 + 0.1 * jnp.arange(batch)
        values = jax.tree.map(lambda v: v[..., None] * scales, values)
        return jax.vmap(fn, in_axes=(-1, None)), (values, xs)
    return fn, args


def _updated(old, v):
    return 0.9 * old + 0.1 * jnp.tanh(_like(old, v))


def _like(old, v):
    """A value in the shape of another: repeated where it fits, or its mean."""
    try:
        fits = jnp.broadcast_shapes(old.shape, v.shape) == old.shape
    except ValueError:
        fits = False
    return v if fits else jnp.broadcast_to(v.mean(), old.shape)
