"""Indexing: more of the table of small functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from engine_cases import B, Case, D, F, H, I, Q, U, case, index
from jax import lax

MODES = ("clip", "fill", "promise_in_bounds")


def _at(name: str, mode: str) -> Any:
    return lambda x, i, u: getattr(x.at[i], name)(u, mode=mode)


INDEXING: dict[str, Case] = {
    "broken_promise": case(
        lambda x, i, u: [
            _at(name, "promise_in_bounds")(x, i, u) for name in ("add", "set", "min")
        ],
        (F, (7, 3)),
        index(7),
        (F, (3,)),
    ),
    "item": case(lambda x, i: (x[i], x[-1], x[i] + x[0]), (F, (7,)), index(7)),
    "row": case(lambda x, i: (x[i, :], x[:, i], x[i]), (F, (7, 7)), index(7)),
    "row_of_narrow": case(lambda x, i: x[i.astype("int8")], (I, (7, 3)), index(7)),
    "row_of_unsigned": case(lambda x, i: x[i], (I, (7, 3)), (U, ())),
    "rows": case(lambda x, i: (x[i], x[:, i]), (F, (7, 7)), index(7, 4)),
    "table": case(lambda x, i: x[i], (I, (7, 2)), index(7, 3, 2)),
    "pairs": case(lambda x, i, j: x[i, j], (F, (7, 5)), index(7, 6), index(5, 6)),
    "pair": case(lambda x, i, j: (x[i, j], x[j, i]), (F, (5, 5)), index(5), index(5)),
    "mixed_pair": case(lambda x, i: x[i, :, i], (F, (5, 3, 5)), index(5, 4)),
    **{
        f"take_{mode}": case(
            lambda x, i, mode=mode: (
                x.at[i].get(mode=mode),
                x.at[:, i].get(mode=mode),
            ),
            (dtype, (7, 7)),
            index(7, 5),
        )
        for mode in MODES[:2]
        for dtype in (F, I, Q, "uint8")[:2]
    },
    "fill_types": case(
        lambda a, b, c, d, i: [x.at[i].get(mode="fill") for x in (a, b, c, d)],
        (F, (5,)),
        (I, (5,)),
        (Q, (5,)),
        (H, (5,)),
        index(5, 6),
    ),
    "fill_value": case(
        lambda x, i: x.at[i].get(mode="fill", fill_value=-1.5), (F, (5, 3)), index(5, 6)
    ),
    "fill_negative": case(
        lambda x, i: (
            jnp.take(x, i, mode="fill", wrap_negative_indices=False)
            if False
            else lax.gather(
                x,
                i[:, None],
                lax.GatherDimensionNumbers((1,), (), (0,)),
                (2,),
                mode="fill",
            )
        ),
        (F, (7,)),
        index(7, 5),
    ),
    "windows_clipped": case(
        lambda x, i: lax.gather(
            x,
            jnp.stack([i, i + 1], -1),
            lax.GatherDimensionNumbers((1, 2), (), (0, 1)),
            (3, 2),
            mode="clip",
        ),
        (F, (7, 5)),
        index(7, 4),
    ),
    "take_along": case(
        lambda x, i: (
            jnp.take_along_axis(x, i, 1),
            jnp.take_along_axis(x, i[:, :1], 1, mode="clip"),
        ),
        (F, (4, 7)),
        index(7, 4, 3),
    ),
    "take_wrap": case(lambda x, i: jnp.take(x, i, mode="wrap"), (I, (7,)), index(7, 5)),
    "dynamic_slice": case(
        lambda x, i: (
            lax.dynamic_slice(x, (i, i - 1), (3, 2)),
            lax.dynamic_index_in_dim(x, i, 0),
            lax.dynamic_slice_in_dim(x, i, 5, 1),
        ),
        (F, (7, 5)),
        index(7),
    ),
    "dynamic_slice_of_lazy": case(
        lambda x, i: lax.dynamic_slice(x * 2, (i,), (3,)) + 1, (I, (9,)), index(9)
    ),
    "dynamic_update_slice": case(
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i - 1)),
        (F, (7, 5)),
        (F, (3, 2)),
        index(7),
        state=True,
    ),
    "ring": case(
        lambda x, u, i: lax.dynamic_update_index_in_dim(x, u + x[0], i, 0),
        (I, (9,)),
        (I, ()),
        index(9),
        state=True,
    ),
    "update_and_old": case(
        lambda x, i: (x + x.at[i].set(0)) % 1000, (I, (9,)), index(9), state=True
    ),
    "update_beside_lazy": case(  # what is pulled late must see the old values
        lambda x, i: (x.at[i].set(0) + x[::-1]) % 1000, (I, (9,)), index(9), state=True
    ),
    "update_beside_slice": case(
        lambda x, i: (x.at[0].set(5).at[i].add(x[1] + i) + x[2:].max()) % 1000,
        (I, (9,)),
        index(9),
        state=True,
    ),
    "update_twice": case(
        lambda x, i: x.at[i].set(x[0]).at[0].add(x.at[i].add(5)[-1]) % 1000,
        (I, (9,)),
        index(9),
        state=True,
    ),
    "swap": case(
        lambda x, i, j: x.at[i].set(x[j]).at[j].set(x[i]),
        (F, (7,)),
        index(7),
        index(7),
        state=True,
    ),
    **{
        f"at_{name}_{mode}": case(
            _at(name, mode), (I, (7,)), index(7), (I, ()), state=True
        )
        for name in ("set", "add", "subtract", "multiply", "min", "max")
        for mode in ("clip", "drop")
    },
    **{
        f"at_rows_{name}_{dtype}": case(
            _at(name, "drop"),
            (dtype, (7, 3)),
            index(7, 5),
            (dtype, (5, 3)),
            state=True,
            rounds=1,
        )
        for name, dtype in (
            ("add", F),
            ("add", D),
            ("multiply", F),
            ("min", F),
            ("max", H),
            ("add", B),
        )
    },
    "at_duplicates": case(
        lambda x, i: x.at[i % 3].add(1).at[:, i].add(2),
        (I, (7, 7)),
        index(7, 9),
        state=True,
    ),
    "at_column": case(
        lambda x, i, u: x.at[:, i].set(u), (F, (5, 7)), index(7), (F, (5,)), state=True
    ),
    "at_pairs": case(
        lambda x, i, j, u: x.at[i, j].add(u, mode="drop"),
        (I, (5, 7)),
        index(5, 6),
        index(7, 6),
        (I, (6,)),
        state=True,
    ),
    "at_slice": case(
        lambda x, u: x.at[1:4].add(u).at[::2].multiply(2),
        (I, (7,)),
        (I, (3,)),
        state=True,
    ),
    "at_bool": case(lambda x, i: x.at[i].set(True), (Q, (7,)), index(7), state=True),
    "at_mask": case(
        lambda x, m: jnp.where(m, x, x[::-1]), (F, (7,)), (Q, (7,)), state=True
    ),
    "one_hot": case(
        lambda i: (jax.nn.one_hot(i, 7), jnp.eye(7, dtype=I)[i]), index(7, 3)
    ),
    "searchsorted": case(
        lambda x, v: jnp.searchsorted(jnp.sort(x), v), (I, (9,)), (I, (4,))
    ),
    "searchsorted_float": case(
        lambda x, v: jnp.searchsorted(jnp.sort(x), v, method="compare_all"),
        (F, (9,)),
        (F, (4,)),
    ),
    "roll_by": case(lambda x, i: jnp.roll(x, i), (F, (7,)), index(7)),
    "row_lookup": case(lambda s, t, x: t[s, x], index(5), (I, (5, 7)), index(7)),
}
