"""The parts that random loops are made of.

A part is a function of a `Pool`, the values that a step has so far.  It picks some of
them, computes something that a user might, and adds the result; None where the pool has
nothing for it.  Choices come from the part's own source of random numbers, so that a
body is the same whenever it is traced, and parts can be left out one by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

SMALL = 64  # most elements along an axis that is sorted or gone through


@dataclass
class Pool:
    """Values of a step; the sizes of the loop; constants, made once for each shape."""

    constant: Callable[..., jax.Array]  # (number, *shape) -> float32
    floats: list[jax.Array] = field(default_factory=list)
    ints: list[jax.Array] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)

    def float(self, r: random.Random, rank: int | None = None) -> Any:
        found = [v for v in self.floats if rank is None or v.ndim == rank]
        return r.choice(found) if found else None

    def add(self, *values: Any) -> bool:
        for v in values:
            if jnp.issubdtype(v.dtype, jnp.floating):
                self.floats.append(v.astype(jnp.float32))
            else:
                self.ints.append(v.astype(jnp.int32))
        return True


UNARY = (
    jnp.tanh,
    jnp.cos,
    jax.nn.sigmoid,
    jax.nn.softplus,
    jax.nn.gelu,
    lambda v: v / (1 + jnp.abs(v)),
    lambda v: jnp.sqrt(v * v + 0.1),
    lambda v: jnp.exp(-jnp.abs(v)),
    lambda v: jnp.where(v > 0, v, 0.1 * v),
    lambda v: jnp.arctan2(v, 1.5),
    lambda v: jnp.floor(4 * v) / 4,
)
BINARY = (
    jnp.maximum,
    lambda a, b: a * b,
    lambda a, b: a - 0.5 * b,
    lambda a, b: a / (1 + b * b),
    lambda a, b: jnp.where(a > b, a, b * 0.5),
    jnp.logaddexp,
)


def unary(pool, r):
    return pool.add(r.choice(UNARY)(pool.float(r)))


def chain(pool, r):
    """A long elementwise expression with one value read again and again."""
    v = kept = pool.float(r)
    for _ in range(r.randint(3, 9)):
        v = r.choice(UNARY)(v) + r.choice((kept, v, 0.1))
    return pool.add(v * 0.1)


def binary(pool, r):
    a, b = pool.float(r), pool.float(r)
    try:
        jnp.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        b = b.mean()
    return pool.add(r.choice(BINARY)(a, b))


def outer(pool, r):
    a, b = pool.float(r, 1), pool.float(r, 1)
    return a is not None and pool.add(0.1 * a[:, None] * b[None])


def spread(v, axis):
    """The standard deviation, where equal numbers are not a root of rounding errors."""
    return jnp.sqrt(jnp.var(v, axis) + 1e-3)


def reduced(pool, r):
    v = pool.float(r)
    if not v.ndim:
        return None
    fold = r.choice((jnp.mean, jnp.max, jax.nn.logsumexp, spread, jnp.sum))
    v = fold(v, axis=r.randrange(v.ndim))
    return pool.add(v * 0.1 if fold is jnp.sum else v)


def normalized(pool, r):
    v = pool.float(r)
    if not v.ndim:
        return None
    way = r.choice((jax.nn.softmax, jax.nn.standardize))
    return pool.add(way(v + 0.0, axis=r.choice((-1, 0))))


def product(pool, r):
    v = pool.float(r)
    if not v.ndim:
        return None
    width = r.choice((v.shape[-1], 3, 16, 40))
    if v.shape[-1] * width > 1 << 16:
        return None
    w = pool.constant(r.randrange(3), v.shape[-1], width) * v.shape[-1] ** -0.5
    return pool.add(jnp.tanh(v @ w))


def contraction(pool, r):
    a, b = pool.float(r, 2), pool.float(r, 2)
    if a is None or a.shape[-1] != b.shape[-1] or len(a) * b.size > 1 << 20:
        return None
    return pool.add(jnp.tanh(jnp.einsum("ik,jk->ij", a, b) / a.shape[-1]))


def moved(pool, r):
    v = pool.float(r)
    if not v.ndim:
        return None
    axis = r.randrange(v.ndim)
    ways = (
        lambda: jnp.roll(v, r.choice((1, -2)), axis),
        lambda: jnp.flip(v, axis),
        lambda: v.T,
        lambda: v.reshape(-1),
        lambda: jnp.concatenate([v, jnp.zeros_like(v)], axis),
        lambda: lax.slice_in_dim(v, 0, max(1, v.shape[axis] // 2), axis=axis),
        lambda: jnp.diff(v, axis=axis, prepend=0.0),
        lambda: jnp.pad(v, 1),
    )
    return pool.add(r.choice(ways)())


def cumulative(pool, r):
    v = pool.float(r)
    if not v.ndim or v.shape[-1] > 4 * SMALL:
        return None
    way = r.choice((jnp.cumsum, lambda x, axis: lax.cummax(x, axis % x.ndim)))
    return pool.add(jnp.tanh(way(v, axis=-1)))


def ordered(pool, r):
    v = pool.float(r)
    if not v.ndim or v.shape[-1] > SMALL or v.size > 1 << 14:
        return None
    way = r.randrange(3)
    if way == 0:
        return pool.add(jnp.sort(v, -1))
    if way == 1:
        return pool.add(jnp.argsort(v, -1))
    return pool.add(*lax.top_k(v, min(3, v.shape[-1])))


def best(pool, r):
    v = pool.float(r)
    return v.ndim > 0 and pool.add(jnp.argmax(v, -1))


def gathered(pool, r):
    """Rows or numbers at positions that the data say."""
    v = pool.float(r)
    if not v.ndim or not pool.ints:
        return None
    i = r.choice(pool.ints) % len(v)
    if i.size * v.size // len(v) > 1 << 16:
        return None
    return pool.add(v[i])


def looked_up(pool, r):
    if not pool.ints:
        return None
    i = r.choice(pool.ints)
    if i.size > 4096:
        return None
    return pool.add(pool.constant(3, 100, r.choice((1, 7)))[i % 100, 0])


def scattered(pool, r):
    """Numbers set or added at positions that the data say."""
    v = pool.float(r)
    if not v.ndim or not pool.ints:
        return None
    i = r.choice(pool.ints)
    if i.ndim > 1:
        return None
    at = v.at[i % len(v)]
    return pool.add(r.choice((at.set, at.add, at.max))(0.1))


def part_of(pool, r):
    v = pool.float(r)
    if not v.ndim or not pool.ints:
        return None
    i, size = r.choice(pool.ints).reshape(-1)[0], max(1, len(v) // 3)
    if r.random() < 0.5:
        return pool.add(lax.dynamic_slice_in_dim(v, i % len(v), size))
    new = jnp.zeros((size, *v.shape[1:])) + 0.5
    return pool.add(lax.dynamic_update_slice_in_dim(v, new, i % len(v), 0))


def integers(pool, r):
    """A hash, as games and generators have it."""
    v = r.choice(pool.ints) if pool.ints else jnp.floor(8 * pool.float(r))
    v = v.astype(jnp.uint32)
    for shift in r.sample((13, 17, 5, 7), 2):
        v = v ^ (v << shift)
        v = v ^ (v >> (32 - shift))
    return pool.add((v % 97).astype(jnp.int32))


def drawn(pool, r):
    if not pool.keys:
        return None
    i = r.randrange(len(pool.keys))
    pool.keys[i], key = jax.random.split(pool.keys[i])
    v = pool.float(r)
    shape = v.shape if v.size <= 1 << 14 else ()
    way = r.randrange(6)
    if way == 0:
        return pool.add(0.1 * jax.random.normal(key, shape))
    if way == 1:
        return pool.add(jax.random.uniform(key, shape))
    if way == 2:
        return pool.add(jnp.where(jax.random.bernoulli(key, 0.5, shape), 0.1, -0.1))
    if way == 3:
        return pool.add(jax.random.randint(key, shape, 0, 50))
    if way == 4 and v.ndim and v.size <= 4096:
        return pool.add(jax.random.categorical(key, v))
    return pool.add(0.1 * jax.random.exponential(key, shape))


def branch(pool, r):
    """`cond` or `switch` by one number."""
    v, by = pool.float(r), pool.float(r)
    f, g, h = r.sample(UNARY, 3)
    if r.random() < 0.5:
        return pool.add(lax.cond(by.mean() > 0, f, g, v))
    which = jnp.abs(jnp.floor(8 * by.mean())).astype(jnp.int32) % 3
    return pool.add(lax.switch(which, [f, g, h], v))


def rows(pool, r):
    """A scan inside: over the rows of a value."""
    v = pool.float(r, 2) if r.random() < 0.7 else pool.float(r, 1)
    if v is None or len(v) > SMALL:
        return None
    f, keep = r.choice(UNARY), r.random() < 0.6

    def step(c, x):
        c = 0.5 * c + 0.5 * f(x)
        return c, c if keep else None

    c, ys = lax.scan(step, jnp.zeros(v.shape[1:]), v, reverse=r.random() < 0.3)
    return pool.add(ys if keep else c)


def repeated(pool, r):
    """A `fori_loop` inside, as fixed-point iterations have it."""
    v, f = pool.float(r), r.choice(UNARY)
    if v.size > 1 << 14:
        return None
    times = r.randint(2, 6)
    return pool.add(lax.fori_loop(0, times, lambda i, x: 0.5 * (v + f(x)), v))


def until(pool, r):
    """A `while_loop` inside, that ends by its data (no gradient in reverse)."""
    v = pool.float(r)
    if v.size > 1 << 12:
        return None

    def goes_on(state):
        return (state[0] < 5) & (jnp.abs(state[1]).max() > 0.2)

    step = lambda state: (state[0] + 1, 0.6 * state[1])
    return pool.add(lax.while_loop(goes_on, step, (0, v))[1])


def solved(pool, r):
    """A small system of equations."""
    v = pool.float(r, 2)
    if v is None:
        return None
    v = v[:3, :3]
    if v.shape != (3, 3):
        return None
    matrix = v @ v.T + jnp.eye(3)
    factor = jnp.linalg.cholesky(matrix)
    return pool.add(jax.scipy.linalg.solve_triangular(factor, v[0], lower=True))


COMMON = (unary, binary, chain, reduced, product)
RARE = (
    outer,
    normalized,
    contraction,
    moved,
    cumulative,
    ordered,
    best,
    gathered,
    looked_up,
    scattered,
    part_of,
    integers,
    drawn,
    branch,
    rows,
    repeated,
    until,
    solved,
)
NOT_REVERSIBLE = (until,)
