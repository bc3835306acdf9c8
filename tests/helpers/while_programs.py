"""While loops: small programs, and random ones, as functions of arrays."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Program = tuple[Callable[..., Any], tuple[Any, ...]]

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def collatz(n: Any) -> Any:
    """How many rounds, which depends on the number; 1 takes none."""
    step = lambda s: (jnp.where(s[0] % 2 == 1, 3 * s[0] + 1, s[0] // 2), s[1] + 1)
    return lax.while_loop(lambda s: s[0] > 1, step, (n, jnp.zeros_like(n)))


def root(x: Any) -> Any:
    close = lambda y: jnp.abs(y * y - x) > 1e-2 * x
    return lax.while_loop(close, lambda y: (y + x / y) / 2, x + 1)


def cube_root(z: Any) -> Any:
    """Newton's method for a complex root of one, and how many rounds it takes."""
    far = lambda s: (jnp.abs(s[0] ** 3 - 1) > 1e-4) & (s[1] < 40)
    step = lambda s: (s[0] - (s[0] ** 3 - 1) / (3 * s[0] ** 2), s[1] + 1)
    return lax.while_loop(far, step, (z, 0))[1]


def escape(c: Any) -> Any:
    """Rounds until a point of the Mandelbrot set's surroundings is far away."""
    near = lambda s: (jnp.abs(s[0]) < 2) & (s[1] < 30)
    return lax.while_loop(near, lambda s: (s[0] * s[0] + c, s[1] + 1), (0 * c, 0))[1]


def until(x: Any, n: Any) -> Any:
    """A bound that is known only when it runs."""
    return lax.fori_loop(2, n, lambda i, c: c * 0.5 + i, x)


def nested(n: Any) -> Any:
    inner = lambda i: lax.while_loop(lambda s: s > i, lambda s: s // 2, n)
    outer = lambda s: (s[0] - 1, s[1] + inner(s[0]))
    return lax.while_loop(lambda s: s[0] > 0, outer, (n % 5, 0))


def around_a_scan(x: Any) -> Any:
    def body(s: Any) -> Any:
        i, c = s
        return i + 1, lax.scan(lambda c, k: (c * 0.5 + k, None), c, jnp.ones(3) * i)[0]

    return lax.while_loop(lambda s: (s[0] < 6) & (s[1] < 3), body, (0, x))


def with_branches(x: Any) -> Any:
    branch = lambda x: lax.cond(x > 2, lambda x: x - 1.5, lambda x: x * 2 + 1, x)
    return lax.fori_loop(
        0, jnp.int32(jnp.abs(x)) + 3, lambda i, x: branch(x), jnp.float32(x)
    )


def lookup(i: Any) -> Any:
    """Closed over an array, which it reads where the carry says."""
    table = jnp.asarray(TABLE)
    return lax.while_loop(
        lambda s: (s[1] > -4) & (s[0] < 20),
        lambda s: (s[0] + 1, s[1] + table[s[0] % 3, (s[0] * 7) % 4] - 0.5),
        (i, jnp.float32(0)),
    )


def sieve(row: Any) -> Any:
    """Writes into a carry in place."""
    step = lambda s: (s[0] + 1, s[1].at[s[0]].multiply(-2).at[0].add(1))
    return lax.while_loop(lambda s: (s[0] < 4) & (s[1][0] < 3), step, (0, row))


def all_kinds(n: Any) -> Any:
    """Flags, small and large integers, halves, keys, and carries that stay or swap."""
    key = jax.random.key(n)

    def body(s: Any) -> Any:
        key, other = jax.random.split(s["key"])
        drawn = jax.random.bits(other, (2,), np.uint8)
        return {
            "key": key,
            "flag": ~s["flag"],
            "bytes": s["bytes"] ^ drawn,
            "half": s["half"] * 0.5,
            "a": s["b"],
            "b": s["a"],
            "same": s["same"],
            "left": s["left"] - 1,
        }

    start = {
        "key": key,
        "flag": jnp.bool_(True),
        "bytes": jnp.zeros(2, np.uint8),
        "half": jnp.float16(3),
        "a": jnp.arange(3),
        "b": jnp.arange(3) + 7,
        "same": jnp.ones(5),
        "left": n % 4,
    }
    after = lax.while_loop(lambda s: s["left"] > 0, body, start)
    return after | {"key": jax.random.key_data(after["key"])}


def products(x: Any) -> Any:
    matrix = jnp.asarray(TABLE @ TABLE.T) / 128
    return lax.while_loop(
        lambda x: jnp.max(jnp.abs(x)) > 0.25, lambda x: matrix @ x / 2, x
    )


def nothing(x: Any) -> Any:
    """Arrays without elements."""
    return lax.while_loop(
        lambda s: s[1] < 3, lambda s: (s[0] * 2, s[1] + 1), (x, jnp.int32(0))
    )


def without_carry(x: Any) -> Any:
    return lax.while_loop(lambda s: False, lambda s: s, ()), x


INTS = jnp.array([1, 7, 27, 2, 0, 6, 9, 1, 12, 3, 5, 4, 8, 10, 11, 13, 17, 15, 30])
FLOATS = jnp.linspace(0.5, 40.0, 21, dtype=np.float32)

PROGRAMS: dict[str, Program] = {
    "collatz": (collatz, (jnp.int32(27),)),
    "collatz, no rounds": (collatz, (jnp.int32(1),)),
    "collatz, vmap": (jax.vmap(collatz), (INTS,)),
    "collatz, vmap of vmap": (
        jax.vmap(jax.vmap(collatz), 1),
        (jnp.arange(24).reshape(4, 6) + 1,),
    ),
    "root": (root, (jnp.float32(2),)),
    "root, vmap": (jax.vmap(root), (FLOATS,)),
    "cube root": (cube_root, (jnp.complex64(2 - 1j),)),
    "cube root, vmap": (jax.vmap(cube_root), (FLOATS + 0.5j,)),
    "escape, vmap": (jax.vmap(escape), (0.1j * FLOATS - 0.4,)),
    "until": (until, (jnp.ones(5), 7)),
    "until, no rounds": (until, (jnp.ones(5), -3)),
    "until, vmap of values": (jax.vmap(until, (0, None)), (jnp.ones((20, 3)), 7)),
    "until, vmap of bounds": (jax.vmap(until), (jnp.ones((19, 2)), INTS)),
    "nested, vmap": (jax.vmap(nested), (INTS,)),
    "around a scan": (around_a_scan, (jnp.float32(0.25),)),
    "around a scan, vmap": (jax.vmap(around_a_scan), (FLOATS / 8,)),
    "branches": (with_branches, (jnp.float32(3),)),
    "branches, vmap": (jax.vmap(with_branches), (FLOATS,)),
    "lookup": (lookup, (jnp.int32(3),)),
    "lookup, vmap": (jax.vmap(lookup), (INTS,)),
    "sieve": (sieve, (jnp.arange(5),)),
    "sieve, vmap": (jax.vmap(sieve), (jnp.arange(90).reshape(18, 5) - 70,)),
    "all kinds": (all_kinds, (jnp.int32(7),)),
    "all kinds, vmap": (jax.vmap(all_kinds), (INTS,)),
    "products": (products, (jnp.arange(3.0) - 1,)),
    "products, vmap": (jax.vmap(products), (jnp.arange(51.0).reshape(17, 3) - 20,)),
    "nothing": (nothing, (jnp.ones((0, 3)),)),
    "nothing, vmap": (jax.vmap(nothing), (jnp.ones((4, 0)),)),
}


def random_program(seed: int) -> Program:
    """A while loop of a few carries, batched or not, of exact operations."""
    r = random.Random(seed)
    shapes = [r.choice(((), (3,), (2, 3))) for _ in range(r.randint(1, 3))]
    kinds = [r.choice((np.float32, np.int32)) for _ in shapes]
    most, limit = r.randint(0, 12), r.choice((3, 20, 300))
    batch = r.choice((0, 1, 5, 33))
    plan = [
        (r.randrange(len(shapes)), r.choice("add max flip step"), r.randint(-3, 3))
        for _ in shapes
    ]

    def body(state: Any) -> Any:
        i, carries = state
        after = []
        for k, (other, how, number) in enumerate(plan):
            x, y = carries[k], carries[other].astype(kinds[k]).sum()
            if how == "add":
                x = x + y % 7 + number
            elif how == "max":
                x = jnp.maximum(x, y % 5) + jnp.asarray(i % 3, kinds[k])
            elif how == "flip":
                x = jnp.where(y > number, -x + 1, x[..., ::-1] if x.ndim else x + 2)
            else:
                x = jnp.where(jnp.asarray(i, kinds[k]) > number, x + number + 1, y % 9)
            after.append(x)
        return i + 1, after

    def f(*carries: Any) -> Any:
        goes_on = lambda s: (s[0] < most) & (jnp.abs(s[1][0]).sum() < limit)
        return lax.while_loop(goes_on, body, (jnp.int32(0), list(carries)))

    rng = np.random.default_rng(seed)
    lead = (batch,) if batch else ()
    args = tuple(
        jnp.asarray(rng.integers(-4, 5, (*lead, *shape)), kind)
        for shape, kind in zip(shapes, kinds, strict=True)
    )
    return (jax.vmap(f) if batch else f), args
