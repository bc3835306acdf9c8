"""Convolutions and pools in a body: every parameter as XLA has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from engines import kernels_alone
from jax import lax

import onescan


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


def image(*shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(values, np.float32)


def convolution(**options: Any) -> Callable[..., Any]:
    return lambda x, w: lax.conv_general_dilated(
        x, w, **{"window_strides": (1, 1), "padding": "SAME", **options}
    )


CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "stencil": (convolution(), image(1, 1, 9, 7), image(1, 1, 3, 3)),
    "layer": (convolution(), image(2, 3, 6, 5), image(4, 3, 3, 3)),
    "strides": (
        convolution(window_strides=(2, 3), padding=((1, 2), (0, 4))),
        image(2, 3, 9, 8),
        image(2, 3, 2, 3),
    ),
    "dilated": (
        convolution(rhs_dilation=(2, 1), lhs_dilation=(1, 2), padding=((0, 1), (2, 0))),
        image(1, 2, 9, 8),
        image(3, 2, 2, 3),
    ),
    "by channel": (
        convolution(feature_group_count=4),
        image(2, 4, 5, 5),
        image(8, 1, 3, 3),
    ),
    "in groups": (
        convolution(feature_group_count=2),
        image(2, 4, 5, 5),
        image(6, 2, 3, 3),
    ),
    "other order": (
        convolution(dimension_numbers=("NHWC", "HWIO", "NHWC")),
        image(2, 5, 6, 3),
        image(3, 3, 3, 2),
    ),
    "causal filter": (
        lambda x, w: lax.conv_general_dilated(x, w, (1,), [(3, 0)]),
        image(2, 3, 9),
        image(2, 3, 4),
    ),
    "line": (lambda x, w: jnp.convolve(x, w, mode="same"), image(20), image(5)),
    "pools": (
        lambda x, w: [
            lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 3), (1, 2, 1), "SAME"),
            lax.reduce_window(x, jnp.inf, lax.min, (1, 2, 2), (1, 1, 2), "VALID"),
            lax.reduce_window(x, 0.0, lax.add, (1, 3, 1), (1, 1, 1), "SAME"),
        ],
        image(2, 6, 7),
        image(1),
    ),
}


def both(f: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    def step(carry: Any, _: Any) -> Any:
        return jax.tree.map(lambda x: x * 0.5, carry), f(*carry)

    run = lambda *xs: onescan.scan(step, xs, None, length=2)
    with onescan.engine("native"):
        ours = jax.jit(run)(*args)
    with onescan.engine("xla"):
        return ours, jax.jit(run)(*args)


@pytest.mark.parametrize("name", CASES)
def test_as_xla_has_it(name: str) -> None:
    assert_same(*both(*CASES[name]), rounding=4)


@pytest.mark.parametrize("name", ["stencil", "in groups", "pools"])
def test_in_lanes(name: str) -> None:
    f, *args = CASES[name]
    spread = [jnp.stack([x * k for k in range(1, 10)]) for x in args]
    assert_same(*both(jax.vmap(f), *spread), rounding=4)


def test_a_large_convolution_is_left() -> None:
    def step(c: Any, _: Any) -> Any:
        return lax.conv(
            c, jnp.ones((16, 16, 3, 3), "float32"), (1, 1), "SAME"
        ) / 1000, None

    jax.jit(lambda c: onescan.scan(step, c, None, length=2)[0])(image(1, 16, 32, 32))
    assert "`conv_general_dilated` at" in str(onescan.report().rows[-1].reason)


@pytest.mark.parametrize("size", [9, 40])
def test_rows_are_convolved_in_their_steps(size: int) -> None:
    """XLA takes 20 times as long for a batch of rows, on a CPU."""
    k = jnp.linspace(0.0, 1.0, size)
    f = lambda xs: onescan.scan(lambda c, x: (c, jnp.convolve(x, k, "same")), 0.0, xs)
    onescan.clear_report()
    jax.jit(f).lower(jnp.ones((30, 64)))
    (row,) = onescan.report().rows
    assert "hoist" not in row.passes
    assert "sink" not in row.passes
    assert row.engine == ("native" if size == 9 else "xla")
