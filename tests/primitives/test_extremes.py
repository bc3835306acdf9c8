"""The largest and smallest of numbers that include NaN, -0 and infinities."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree, kernels_alone

import onescan

NAN = float("nan")
NUMBERS = [NAN, -NAN, 0.0, -0.0, np.inf, -np.inf, 1.5, -1.5, 1e-30, -1e-30]
#: none of these is NaN; all are zeros; all are negative or -0
CHOICES = (NUMBERS, NUMBERS[2:], NUMBERS[2:4], [-0.0, -np.inf, -2.0, -1e-30])


def rows(kind: str, size: int) -> Any:
    """For each choice some rows of that many numbers, mixed by chance."""
    rng = np.random.default_rng(size)
    mixed = [rng.choice(choice, (40, size)) for choice in CHOICES]
    return np.concatenate(mixed).astype(jnp.dtype(kind))


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        *(("float32", size) for size in (1, 6, 7, 64)),
        *(("float64", size) for size in (5, 16, 23)),
        *(("bfloat16", size) for size in (1, 7, 23)),
    ],
)
def test_extremes(kind: str, size: int) -> None:
    """Of each row by itself, of the columns of a table, and for each lane."""
    reduced = lambda x, axis: (jnp.max(x, axis), jnp.min(x, axis))
    alone = lambda xs: onescan.scan(lambda n, x: (n + 1, reduced(x, -1)), 0, xs)[1]

    def everything(xs: Any) -> Any:
        lanes = jax.vmap(alone)(xs.reshape(20, -1, size))
        columns = alone(jnp.swapaxes(xs.reshape(4, -1, size), 1, 2))
        table = lambda n, x: (n + 1, reduced(x, 0))
        return alone(xs), lanes, columns, onescan.scan(table, 0, xs[:, :, None])[1]

    with kernels_alone():
        native = assert_engines_agree(everything, rows(kind, size))
    signs = np.signbit(np.asarray(native[0][0], np.float64))
    assert signs.any()
    assert not signs.all()
