"""Control flow and random numbers: more of the table of small functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from engine_cases import B, Case, D, F, H, I, L, Q, U, case, index
from jax import lax, random


def _countdown(x: Any, n: Any) -> Any:
    """A while loop whose number of rounds depends on the data."""
    return lax.while_loop(
        lambda s: s[1] > 0, lambda s: (jnp.sin(s[0]) + 1, s[1] - 1), (x, jnp.abs(n) % 5)
    )


def _collatz(n: Any) -> Any:
    step = lambda s: (jnp.where(s[0] % 2, 3 * s[0] + 1, s[0] // 2), s[1] + 1)
    return lax.while_loop(lambda s: s[0] > 1, step, (jnp.abs(n) % 30 + 1, 0))[1]


def _root(x: Any, limit: Any) -> Any:
    """Newton's iterations, until a limit that the loop does not change is met."""
    x = jnp.abs(x) + 0.1
    return lax.while_loop(
        lambda y: jnp.abs(y * y - x) > limit, lambda y: (y + x / y) / 2, x + 1
    )


def _sieve(x: Any) -> Any:
    """A while loop that asks one of its carries, and writes into another in place."""

    def step(state: Any) -> Any:
        _, row, i = state
        row = row.at[i].multiply(-2)
        return (i < 4) & (row.sum() % 3 != 0), row, i + 1

    return lax.while_loop(lambda s: s[0], step, (x[0] > 0, x, 0))


def _rounds_of_rounds(n: Any) -> Any:
    """A while loop in a while loop, each with its own number of rounds."""
    inner = lambda i: lax.while_loop(lambda s: s > i, lambda s: s // 2, jnp.abs(n) % 99)
    outer = lambda s: (s[0] - 1, s[1] + inner(s[0]))
    return lax.while_loop(lambda s: s[0] > 0, outer, (jnp.abs(n) % 4, 0))


CONTROL: dict[str, Case] = {
    "cond": case(
        lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x[::-1] * 2, x),
        (Q, ()),
        (I, (5,)),
    ),
    "cond_state": case(
        lambda x, p: lax.cond(p, lambda x: x.at[0].add(7), jnp.negative, x),
        (I, (9,)),
        (Q, ()),
        state=True,
    ),
    "cond_several": case(
        lambda p, x, y: lax.cond(
            p > 0, lambda x, y: (x + y, y), lambda x, y: (x * y, x), x, y
        ),
        (I, ()),
        (I, (5,)),
        (I, (5,)),
    ),
    "switch": case(
        lambda i, x: lax.switch(
            i, [lambda x: x, lambda x: -x, lambda x: x * 3, lambda x: x[0] + x], x
        ),
        index(3),
        (I, (5,)),
    ),
    "switch_of_one": case(
        lambda i, x: lax.switch(i, [jnp.negative], x), (I, ()), (I, (3,))
    ),
    "fori": case(
        lambda x: lax.fori_loop(0, 4, lambda i, s: s * 3 + i, x), (I, (5,)), state=True
    ),
    "fori_long": case(
        lambda x: lax.fori_loop(0, 20, lambda i, s: s.at[i % 5].add(s[i % 3]), x),
        (I, (5,)),
        state=True,
    ),
    "while": case(_countdown, (D, (3,)), (I, ()), rounds=1),
    "while_int": case(_collatz, (I, ())),
    "while_that_reads": case(
        lambda x: _root(x, 1e-6 * (x + 1) ** 2), (D, ()), rounds=1
    ),
    "while_in_place": case(_sieve, (I, (6,))),
    "while_in_while": case(_rounds_of_rounds, (I, ())),
    "while_that_sums": case(
        lambda x: lax.while_loop(lambda s: s.sum() < 30, lambda s: s + 1, x % 9),
        (I, (5,)),
        state=True,
    ),
    "whiles": case(jax.vmap(_collatz), (I, (37,))),
    "whiles_of_rows": case(jax.vmap(_countdown), (D, (5, 3)), (I, (5,)), rounds=1),
    "whiles_of_whiles": case(jax.vmap(jax.vmap(_rounds_of_rounds)), (I, (3, 5))),
    "whiles_then_mixed": case(lambda n: jax.vmap(_collatz)(n)[::-1].sum(), (I, (9,))),
    "whiles_of_one_limit": case(
        lambda x, y: jax.vmap(_root, (0, None))(x, 1e-6 + jnp.abs(y)),
        (D, (5,)),
        (D, ()),
        rounds=1,
    ),
    "conds": case(
        jax.vmap(lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x * 2, x)),
        (Q, (5,)),
        (I, (5,)),
    ),
    "switches": case(
        jax.vmap(
            lambda i, x: lax.switch(
                i, [lambda x: x, lambda x: -x, lambda x: x * x.max()], x
            )
        ),
        index(3, 5),
        (I, (5, 4)),
    ),
    "scan": case(lambda x: lax.scan(lambda c, y: (c + y, c * y), x[0], x), (I, (3, 5))),
    "scan_long": case(
        lambda x, y: lax.scan(lambda c, t: (jnp.tanh(c + t), c[0]), x, y, reverse=True),
        (D, (4,)),
        (D, (9, 4)),
        rounds=1,
    ),
    "scan_state": case(
        lambda x: lax.scan(lambda c, _: (c[::-1] + 1, None), x, None, length=3)[0],
        (I, (6,)),
        state=True,
    ),
    "scan_swap": case(
        lambda x, y: lax.scan(
            lambda c, _: ((c[1], c[0] + 1), c[0][0]), (x, y), None, 5
        ),
        (I, (3,)),
        (I, (3,)),
    ),
    "scan_in_scan": case(
        lambda x: lax.scan(
            lambda c, r: (
                lax.scan(lambda d, s: (d + s, d), c, r)[0],
                lax.map(lambda s: s * 2, r),
            ),
            jnp.int32(0),
            x,
        ),
        (I, (3, 6)),
    ),
    "scan_of_none": case(
        lambda x: lax.scan(lambda c, y: (c + y, y), x, jnp.zeros((0,), I)), (I, ())
    ),
    "cond_in_scan_in_while": case(
        lambda x: lax.fori_loop(
            0,
            jnp.int32(3),
            lambda i, s: lax.scan(
                lambda c, y: (lax.cond(y > i, lambda c: c + y, lambda c: c - 1, c), c),
                s,
                jnp.arange(4, dtype=I),
            )[0],
            x,
        ),
        (I, ()),
        state=True,
    ),
    "associative_scan": case(lambda x: lax.associative_scan(jnp.maximum, x), (I, (9,))),
    "map": case(lambda x: lax.map(lambda r: jnp.sort(r)[0], x), (I, (6, 4))),
    "jit_inside": case(jax.jit(lambda x: jnp.clip(x, -1, 1) + 1), (F, (5,))),
    "relu_and_friends": case(
        lambda x: (jax.nn.relu(x), jax.nn.gelu(x), jax.nn.silu(x), jax.nn.softplus(x)),
        (D, (9,)),
        rounds=1,
    ),
    "remat": case(jax.checkpoint(lambda x: jnp.sin(x) * 2), (D, (5,)), rounds=1),
    "grad_of_gelu": case(
        lambda x: jax.vmap(jax.grad(lambda y: jax.nn.gelu(y, approximate=False)))(x),
        (D, (9,)),
        rounds=1,
    ),
    "grad_of_cond": case(
        lambda x, i: jax.grad(
            lambda y: lax.switch(i, [jnp.sin, jnp.cos, lambda z: z * z], y).sum()
        )(x),
        (D, (5,)),
        index(3),
        rounds=1,
    ),
    "empty": case(lambda x: lax.empty((5, 3), F) * 0 + x, (F, (3,))),
    "grad_inside": case(
        lambda x: jax.grad(lambda y: jnp.sum(jnp.tanh(y) * y[::-1]))(x),
        (D, (5,)),
        state=True,
        rounds=4,
    ),
}


def _key(seed: Any, impl: str | None = None) -> Any:
    return random.key(seed.astype(U), impl=impl)


RANDOM: dict[str, Case] = {
    "split": case(
        lambda s: [random.key_data(k) for k in random.split(_key(s), 3)], (I, ())
    ),
    "split_typed": case(lambda s: random.split(_key(s), (2, 3)), (U, ())),
    "split_raw": case(lambda k: random.split(k), (U, (2,))),
    "state_raw": case(lambda k: random.split(k)[0], (U, (2,)), state=True),
    "walk_raw": case(
        lambda k: random.key_data(
            random.split(random.wrap_key_data(random.split(k)[1]))[0]
        ),
        (U, (2,)),
        state=True,
    ),
    "fold_in": case(
        lambda s, n: (random.fold_in(_key(s), n), random.bits(_key(s))),
        (U, ()),
        (U, ()),
    ),
    **{
        f"bits_{dtype}": case(
            lambda s, dtype=dtype: random.bits(_key(s), (5,), dtype), (U, ())
        )
        for dtype in ("uint8", "uint16", "uint32", "uint64")
    },
    "bits_shapes": case(
        lambda s: [random.bits(_key(s), n) for n in ((), (1,), (3, 5), (33,))], (U, ())
    ),
    **{
        f"uniform_{dtype}": case(
            lambda s, dtype=dtype: random.uniform(_key(s), (7,), dtype, -1, 1),
            (U, ()),
            rounds=1,
        )
        for dtype in (F, D, H, B)
    },
    "normal": case(
        lambda s: (random.normal(_key(s), (9,), F), random.normal(_key(s), (), D)),
        (U, ()),
        rounds=1,
    ),
    "randint": case(
        lambda s: [random.randint(_key(s), (5,), -7, 1000, d) for d in (I, L, "int8")],
        (U, ()),
    ),
    "categorical": case(
        lambda s, x: random.categorical(_key(s), x), (U, ()), (D, (5, 4))
    ),
    "bernoulli": case(lambda s: random.bernoulli(_key(s), 0.3, (9,)), (U, ())),
    "permutation": case(lambda s: random.permutation(_key(s), 9), (U, ())),
    "exponential": case(lambda s: random.exponential(_key(s), (5,)), (U, ()), rounds=1),
    "choice": case(lambda s, x: random.choice(_key(s), x, (4,)), (U, ()), (F, (6,))),
    "keys_vmapped": case(
        lambda s: jax.vmap(lambda k: random.normal(k, (2,), D))(
            random.split(_key(s), 5)
        ),
        (U, ()),
        rounds=1,
    ),
    "keys_in_control": case(
        lambda s, p: (
            lax.scan(
                lambda c, _: ((c[0] + 1, random.split(c[1])[0]), c[1]),
                (0, _key(s)),
                None,
                length=5,
            ),
            lax.cond(p, lambda k: (1, k), lambda k: (2, random.fold_in(k, 3)), _key(s)),
            lax.fori_loop(
                0, 3, lambda i, c: (c[0] + i, random.split(c[1])[1]), (0, _key(s))
            ),
        ),
        (U, ()),
        (Q, ()),
    ),
    "keys_moved": case(
        lambda s, i: [
            f(random.split(_key(s), 6))
            for f in (
                lambda k: jnp.concatenate([k[2:], k[:1]]),
                lambda k: k.reshape(2, 3).T,
                lambda k: jnp.stack([k[0], k[i]]),
                lambda k: k[::-1],
                lambda k: k.at[i].set(k[0]),
                lambda k: lax.dynamic_slice_in_dim(k, i, 2),
                lambda k: lax.dynamic_update_slice_in_dim(k, k[:2], i, 0),
                lambda k: jnp.where(jnp.arange(6) < i, k, k[::-1]),
                lambda k: k[jnp.array([1, 5, 0])],
                lambda k: jnp.broadcast_to(k[:, None], (6, 2)),
                lambda k: jnp.split(k, 3)[1],
            )
        ],
        (U, ()),
        index(6),
    ),
    "key_indexed": case(
        lambda s, i: random.key_data(random.split(_key(s), 5)[i]), (U, ()), index(5)
    ),
}
