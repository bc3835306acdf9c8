"""Bodies with control flow, indexing, sorting and reductions of their own."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from table import Problem, case, normal


@case()
def nested_scan(rng):
    weights = normal(rng, 4)

    def f(c, x):
        c, inner = jax.lax.scan(lambda a, w: (0.5 * a + w * x, a), c, weights)
        return c, inner.sum()

    return Problem(f, jnp.float32(0), normal(rng, 5))


@case()
def cond_in_body(rng):
    def f(c, x):
        c = jax.lax.cond(x > 0, lambda c: 0.5 * c + x, lambda c: c * c * 0.1, c)
        return c, c

    return Problem(f, jnp.ones(3), normal(rng, 6))


@case()
def switch_in_body(rng):
    branches = [lambda c: c + 1, lambda c: c * 0.5, lambda c: jnp.sin(c)]

    def f(c, x):
        c = jax.lax.switch(x, branches, c)
        return c, c

    return Problem(f, normal(rng, 2), jnp.asarray(rng.integers(-1, 4, 7)))


@case(differentiable=False)
def while_in_body(rng):
    """Collatz: as many inner steps as each value needs."""

    def f(total, n):
        def step(state):
            n, count = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

        _, count = jax.lax.while_loop(lambda s: s[0] > 1, step, (n, 0))
        return total + count, count

    return Problem(f, jnp.int32(0), rng.integers(1, 30, 5).astype("int32"))


@case()
def fori_in_body(rng):
    def f(c, x):
        c = jax.lax.fori_loop(0, 3, lambda i, c: 0.5 * c + i * x, c)
        return c, c

    return Problem(f, jnp.float32(1), normal(rng, 5))


@case()
def sort_in_body(rng):
    def f(c, x):
        c = jnp.sort(c + x)
        return c, c[::-1] - c

    return Problem(f, normal(rng, 5), normal(rng, 4, 5))


@case()
def gather_in_body(rng):
    table = jnp.asarray(normal(rng, 6, 3))

    def f(c, i):
        row = table[i]
        return 0.5 * c + row, row[jnp.array([2, 0])]

    return Problem(f, jnp.zeros(3), jnp.asarray(rng.integers(-6, 6, 5)))


@case()
def scatter_in_body(rng):
    def f(c, x):
        c = c.at[x["i"]].add(x["v"])
        return c, c.at[0].set(1.0).max()

    xs = {"i": jnp.asarray(rng.integers(0, 6, (5, 2))), "v": normal(rng, 5, 2)}
    return Problem(f, jnp.zeros(6), xs)


@case(differentiable=False)
def histogram(rng):
    def f(counts, i):
        return counts.at[i].add(1), counts[i]

    return Problem(f, jnp.zeros(5, jnp.int32), jnp.asarray(rng.integers(0, 5, 9)))


@case()
def ring_buffer(rng):
    """The carry is written in place: one slot a step."""

    def f(state, x):
        buffer, at = state
        buffer = jax.lax.dynamic_update_slice(buffer, x[None], (at, 0))
        return (buffer, (at + 1) % 3), buffer.mean(0)

    return Problem(f, (jnp.zeros((3, 2)), jnp.int32(0)), normal(rng, 7, 2))


@case()
def delay_line(rng):
    def f(state, x):
        line, at = state
        old = jax.lax.dynamic_slice(line, (at,), (1,))[0]
        return (line.at[at].set(x + 0.5 * old), (at + 1) % 4), old

    return Problem(f, (jnp.zeros(4), 0), normal(rng, 9))


@case()
def cumsum_in_body(rng):
    def f(c, x):
        c = jnp.cumsum(c + x) * 0.3
        return c, (jnp.cumprod(x), jax.lax.cummax(c))

    return Problem(f, normal(rng, 4), normal(rng, 5, 4))


@case()
def reductions_in_body(rng):
    def f(c, x):
        c = 0.5 * c + x.mean(0) - x.max(1)
        return c, (x.sum(), x.prod(0), x.min(), jnp.linalg.norm(c + 1))

    return Problem(f, normal(rng, 3), normal(rng, 4, 3, 3))


@case()
def shapes_in_body(rng):
    """Slices, pads, concatenations, transposes, reversals, reshapes."""

    def f(c, x):
        grid = jnp.concatenate([c[1:], c[:1]]).reshape(2, 3).T + x[:, None]
        c = jnp.flip(jnp.pad(grid.ravel()[1:-1], (2, 0))) * 0.5
        return c, (grid[::-1, 1], jnp.stack([c[:2], c[-2:]]), jnp.roll(c, 1)[::2])

    return Problem(f, normal(rng, 6), normal(rng, 4, 3))


@case()
def matrix_products(rng):
    left = normal(rng, 3, 3, scale=0.5)

    def f(c, x):
        c = left @ c + jnp.outer(x, x) * 0.1
        return c, (jnp.einsum("ij,j->i", c, x), jnp.vdot(x, x), c.T @ x)

    return Problem(f, jnp.eye(3), normal(rng, 5, 3))


@case()
def products_of_no_terms(rng):
    """A filter without inputs: the weights of its inputs have no columns."""
    weights, mix = jnp.zeros((64, 0)), normal(rng, 64, 64) * 0.05

    def f(c, x):
        driven = weights @ jnp.concatenate([x[:0], c[:0]])
        return mix @ c + driven + x, driven * 2 + c

    return Problem(f, jnp.ones(64), normal(rng, 5, 64))


@case()
def jitted_body(rng):
    @jax.jit
    def f(c, x):
        return jax.jit(jnp.sin)(c) + x, c

    return Problem(f, jnp.float32(0), normal(rng, 5))


@case()
def checkpointed_body(rng):
    @jax.checkpoint
    def f(c, x):
        c = jnp.sin(c) * jnp.exp(-x * x)
        return c, c

    return Problem(f, normal(rng, 3), normal(rng, 5, 3))


@case()
def partial_body(rng):
    def f(decay, c, x):
        return decay * c + x, c

    return Problem(functools.partial(f, 0.5), jnp.float32(0), normal(rng, 5))


@case()
def custom_jvp_body(rng):
    @jax.custom_jvp
    def square(x):
        return x * x

    square.defjvp(lambda primals, tangents: (square(*primals), 7.0 * tangents[0]))

    def f(c, x):
        return 0.5 * c + square(x), square(c)

    return Problem(f, jnp.zeros(3), normal(rng, 4, 3))
