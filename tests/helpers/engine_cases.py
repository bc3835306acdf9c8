"""Primitives that move, reduce and multiply: one table of small functions.

A case is a function of arrays and the arrays' types; `state` says that its result
can take the place of its first argument, so that the loop also runs with that one
as its carry, updated in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

F, D, H, B = "float32", "float64", "float16", "bfloat16"
I, L, U, Q = "int32", "int64", "uint32", "bool"

Type = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    f: Callable[..., Any]
    types: tuple[Type, ...]
    state: bool = False
    rounds: float = 0  # times 64 units in the last place, of the largest element


def case(f: Callable[..., Any], *types: Type, **options: Any) -> Case:
    return Case(f, types, **options)


def index(size: int, *shape: int) -> Type:
    """Positions along an axis of `size` elements, some of them outside."""
    return f"index {size}", shape


MOVING: dict[str, Case] = {
    "broadcast": case(
        lambda x, y: (x[:, None] + y, jnp.broadcast_to(y, (4, 5, 3))),
        (I, (5,)),
        (I, (3,)),
    ),
    "broadcast_scalar": case(lambda x: jnp.full((3, 5), x), (F, ())),
    "broadcast_ones": case(lambda x, y: x + y, (F, (4, 1)), (F, (4, 6))),
    "reshape_flat": case(lambda x: (x.reshape(24), x.ravel() * 2), (F, (6, 4))),
    "reshape_split": case(lambda x: x.reshape(2, 3, 4) + 1, (I, (6, 4))),
    "reshape_across": case(lambda x: x.reshape(3, 8), (F, (6, 4))),
    "reshape_ones": case(
        lambda x: (x.reshape(6), x.reshape(6, 1, 1), x.reshape(1, 2, 3)),
        (F, (1, 6, 1)),
    ),
    "reshape_permuted": case(
        lambda x: lax.reshape(x, (8, 3), dimensions=(1, 0)), (F, (6, 4))
    ),
    "reshape_of_lazy": case(lambda x: (x * 3).reshape(5, 2, 2)[1], (I, (4, 5))),
    "reshape_odd": case(lambda x: (x + 1).reshape(15, 7), (I, (5, 21))),
    "transpose": case(
        lambda x: [jnp.transpose(x, p) for p in ((0, 2, 1), (1, 2, 0), (2, 1, 0))],
        (F, (3, 4, 5)),
    ),
    "transpose_state": case(lambda x: x.T + 1, (I, (5, 5)), state=True),
    "squeeze": case(lambda x: (x.squeeze(), lax.squeeze(x, (0,))), (F, (1, 5, 1))),
    "expand_dims": case(lambda x: jnp.expand_dims(x, (0, 2)), (F, (5, 3))),
    "concatenate": case(
        lambda x, y: (
            jnp.concatenate([x, y, x * 2]),
            jnp.concatenate([x, x + 1], 1),
        ),
        (I, (5, 3)),
        (I, (2, 3)),
    ),
    "concatenate_state": case(
        lambda x, y: jnp.concatenate([x[1:], y]), (F, (9,)), (F, (1,)), state=True
    ),
    "stack": case(
        lambda x, y: (jnp.stack([x, y], -1), jnp.stack([x, y, x])),
        (F, (7,)),
        (F, (7,)),
    ),
    "unstack": case(lambda x: jnp.unstack(x, axis=1), (F, (5, 3))),
    "pad": case(lambda x: lax.pad(x, jnp.float32(7), ((1, 2, 0),)), (F, (5,))),
    "pad_interior": case(
        lambda x: lax.pad(x, jnp.int32(-1), ((1, 0, 2), (0, 3, 1))), (I, (3, 4))
    ),
    "pad_negative": case(
        lambda x: (
            lax.pad(x, jnp.float32(0), ((-2, -1, 0),)),
            lax.pad(x, jnp.float32(0), ((-2, 3, 0),)),
            lax.pad(x, jnp.float32(5), ((-3, -2, 2),)),
            lax.pad(x, jnp.float32(5), ((4, -6, 1),)),
        ),
        (F, (9,)),
    ),
    "pad_bool": case(lambda x: jnp.pad(x, 2, constant_values=True), (Q, (3, 2))),
    "slice": case(
        lambda x: (x[2:], x[:-3, 1:4], x[::2, ::3], x[1:9:4], x[3]), (F, (10, 5))
    ),
    "slice_shift": case(
        lambda x: x.at[1:].set(x[:-1]).at[0].set(0), (F, (11,)), state=True
    ),
    "rev": case(lambda x: (x[::-1], lax.rev(x, (0, 1)), x[:, ::-1]), (I, (5, 7))),
    "rev_state": case(lambda x: x[::-1] + 1, (I, (19,)), state=True),
    "iota": case(
        lambda x: (
            [lax.broadcasted_iota(d, (5, 7), k) for d in (F, I) for k in (0, 1)]
            + [x + jnp.arange(5)]
        ),
        (L, (5,)),
    ),
    "iota_halves": case(lambda x: x + jnp.arange(9, dtype=H), (H, (9,)), rounds=1),
    "split": case(lambda x: jnp.split(x, [2, 3], axis=1), (F, (3, 7))),
    "tile": case(lambda x: (jnp.tile(x, 3), jnp.tile(x, (2, 2))), (I, (2, 5))),
    "repeat": case(lambda x: jnp.repeat(x, 3, axis=0), (I, (4, 2))),
    "roll": case(lambda x: (jnp.roll(x, 2), jnp.roll(x, -3, 0)), (F, (5, 7))),
    "diagonal": case(lambda x: (jnp.diag(x), jnp.trace(x), jnp.tril(x)), (I, (6, 6))),
    "copy": case(lambda x: (jnp.copy(x), lax.optimization_barrier(x)), (F, (5,))),
    "empty": case(lambda x: (x[:0], x[:0].sum(), jnp.zeros((0, 3))), (F, (5,))),
    "literal": case(lambda x: (x, 0.0, True, 7), (F, (5,))),
    "literal_state": case(lambda x: jnp.full_like(x, 3), (F, ()), state=True),
    "meshgrid": case(lambda x, y: jnp.meshgrid(x, y), (F, (3,)), (F, (4,))),
    "constant_array": case(lambda x: x * jnp.array([1, 5, 3]) + x, (I, (4, 3))),
}

AXES = list(chain.from_iterable(combinations(range(3), n) for n in (1, 2, 3)))


def over_axes(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: [f(x, axes) for axes in AXES]


REDUCING: dict[str, Case] = {
    **{
        f"{name}_{dtype}": case(over_axes(f), (dtype, (3, 5, 4)), rounds=rounds)
        for name, f, rounds in (
            ("sum", lambda x, a: lax.reduce_sum(x, a), 1),
            ("prod", lambda x, a: lax.reduce_prod(x, a), 1),
            ("max", lambda x, a: lax.reduce_max(x, a), 0),
            ("min", lambda x, a: lax.reduce_min(x, a), 0),
        )
        for dtype in (F, D, I, "uint8")
    },
    **{
        f"{name}_{dtype}": case(over_axes(f), (dtype, (3, 5, 4)))
        for name, f in (
            ("and", lambda x, a: lax.reduce_and(x, a)),
            ("or", lambda x, a: lax.reduce_or(x, a)),
            ("xor", lambda x, a: lax.reduce_xor(x, a)),
        )
        for dtype in (I, Q, "uint16")
    },
    "sum_long": case(lambda x: (x.sum(), x.sum(0), x.sum(1)), (D, (37, 19)), rounds=1),
    "sum_halves": case(
        lambda x, y: (x.sum(), x.max(), y.sum(0), y.min(1)),
        (H, (19,)),
        (B, (3, 9)),
        rounds=1,
    ),
    "sum_scaled": case(
        lambda x: x / jnp.maximum(1, jnp.abs(x).sum()), (F, (33,)), state=True, rounds=1
    ),
    "argmax": case(
        lambda x: [lax.argmax(x, k, I) for k in (0, 1)] + [jnp.argmax(x)], (F, (5, 7))
    ),
    "argmin": case(
        lambda x: [lax.argmin(x, k, L) for k in (0, 1)] + [jnp.argmin(x)], (D, (5, 7))
    ),
    "arg_of_ties": case(
        lambda x: (jnp.argmax(x % 3, 0), jnp.argmin(x % 3, 1)), (I, (9, 8))
    ),
    "arg_of_nan": case(
        lambda x: [
            f(jnp.where(x > 0.3, jnp.nan, x), k)
            for f in (jnp.argmax, jnp.argmin)
            for k in (0, 1)
        ],
        (F, (5, 9)),
    ),
    "arg_of_bool": case(lambda x: (jnp.argmax(x), jnp.argmin(x)), (Q, (9,))),
    "arg_of_unsigned": case(
        lambda x: (lax.argmax(x, 0, "uint8"), jnp.argmin(x)), (U, (9,))
    ),
    **{
        f"{f.__name__}_{dtype}": case(
            lambda x, f=f: (f(x, 0, False), f(x, 1, True)), (dtype, (5, 7)), rounds=4
        )
        for f, dtypes in (
            (lax.cumsum, (F, D, I, "uint8", H)),
            (lax.cumprod, (F, I)),
            (lax.cummax, (D, "uint8")),
            (lax.cummin, (H, I)),
        )
        for dtype in dtypes
    },
    "sort": case(
        lambda x: [jnp.sort(x, k) for k in (0, 1)] + [jnp.argsort(x, 0)], (F, (7, 5))
    ),
    "sort_int": case(lambda x: (jnp.sort(x), jnp.argsort(-(x % 4))), (I, (13,))),
    "sort_unsigned": case(lambda x: jnp.sort(x), ("uint8", (33,))),
    "sort_bool": case(lambda x: (jnp.sort(x), jnp.argsort(x)), (Q, (9,))),
    "sort_halves": case(lambda x: jnp.sort(x), (B, (9,))),
    "sort_several": case(
        lambda x, y, z: (
            lax.sort([x % 3, y, z], num_keys=2),
            lax.sort([x % 3, y, z], dimension=0, num_keys=1),
        ),
        (I, (3, 9)),
        (F, (3, 9)),
        (L, (3, 9)),
    ),
    "sort_nan": case(lambda x: jnp.sort(jnp.where(x > 0, x, jnp.nan)), (F, (9,))),
    "sort_state": case(lambda x: jnp.sort(x)[::-1] * -1, (I, (8,)), state=True),
    "sort_long": case(
        lambda x, y: (
            jnp.sort(x),
            jnp.argsort(y % 5),
            lax.sort([y % 9, jnp.where(x > 1, jnp.nan, x)], num_keys=2),
        ),
        (F, (70,)),
        (I, (70,)),
    ),
    "sort_long_rows": case(lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1)), (D, (2, 65))),
    "sort_long_bytes": case(lambda x: jnp.sort(x), ("uint8", (300,))),
    **{
        f"top_{k}_{dtype}": case(
            lambda x, k=k: (lax.top_k(x, k), lax.top_k(x[:, ::9] * 0, 2)),
            (dtype, (2, 40)),
        )
        for k, dtype in ((1, F), (5, I), (5, H), (16, D), (19, U), (40, F))
    },
    "top_of_nan": case(
        lambda x: [lax.top_k(jnp.where(x > 1, -x * jnp.nan, x), k) for k in (3, 20)],
        (F, (33,)),
    ),
    "top_along_rows": case(lambda x: lax.top_k(x, 3, axis=0), (F, (20, 3))),
    "median": case(
        lambda x: (jnp.median(x), jnp.quantile(x, 0.3)), (D, (9,)), rounds=1
    ),
    "softmax": case(
        lambda x: (jax.nn.softmax(x), jax.nn.logsumexp(x, 0)), (F, (5, 7)), rounds=1
    ),
    "moments": case(
        lambda x: (x.mean(0), x.var(1), x.std(), jnp.linalg.norm(x)),
        (F, (5, 7)),
        rounds=1,
    ),
}

EINSUMS = """
ij,jk->ik ij,kj->ik ji,jk->ik ji,kj->ki ij,j->i j,jk->k i,i-> i,j->ij i,j->ji
bij,bjk->bik bij,bjk->ibk ibj,bjk->bik bij,kj->bik ijk,jkl->il ijk,kj->i ijk,ijk->
ijk,ijk->j abc,cbd->ad bhi,bhj->bhij bi,bi->b bi,bi->i ,ij->ij
""".split()
SIZES = dict(zip("abcdhijkl", (3, 2, 4, 5, 2, 5, 7, 3, 4), strict=True))


def einsum(form: str, dtype: str, sizes: dict[str, int]) -> Case:
    shapes = [tuple(sizes[k] for k in part) for part in form.split("->")[0].split(",")]
    types = [(dtype, shape) for shape in shapes]
    return case(lambda x, y: jnp.einsum(form, x, y), *types, rounds=1)


PRODUCTS: dict[str, Case] = {
    **{f"{form} {F}": einsum(form, F, SIZES) for form in EINSUMS},
    **{
        f"{form} {dtype}": einsum(form, dtype, SIZES)
        for form in ("ij,jk->ik", "ij,j->i", "bij,bjk->bik", "i,i->")
        for dtype in (D, I, H, B, "uint8")
    },
    **{
        f"{form} odd": einsum(form, F, dict.fromkeys("bijk", n))
        for form, n in (
            ("ij,jk->ik", 17),
            ("ij,j->i", 33),
            ("ij,i->j", 33),
            ("i,i->", 65),
            ("ij,kj->ik", 19),
        )
    },
    "product_state": case(
        lambda h, w: jnp.tanh(w @ h), (D, (9,)), (D, (9, 9)), state=True, rounds=1
    ),
    "product_of_lazy": case(
        lambda x, y: (x * 2 + 1).T @ jnp.sin(y), (D, (5, 7)), (D, (5, 3)), rounds=1
    ),
    "product_of_truth_values": case(
        lambda x, y: (x @ y, y @ y, x @ x.T, x), (Q, (24, 40)), (Q, (40,))
    ),
    "product_widened": case(
        lambda x, y: (
            lax.dot(x, y, preferred_element_type=I),
            jnp.dot(x.astype(B), y.astype(B), preferred_element_type=F),
        ),
        ("int8", (5, 7)),
        ("int8", (7, 3)),
        rounds=1,
    ),
    "covariance": case(
        lambda p, a: a @ p @ a.T / (1 + jnp.trace(p) ** 2),
        (D, (4, 4)),
        (D, (4, 4)),
        state=True,
        rounds=1,
    ),
}
