"""16-bit floats are rounded after every operation, as JAX rounds them one by one.

XLA's compiled loops drop some of these roundings (a product that is added to
something, for one), so they are no oracle to the last bit; single operations are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from engines import run
from jax import lax

import onescan

BODIES: dict[str, Callable[..., Any]] = {
    "a product that is added": lambda c, x: (c, 1 + x * x),
    "a difference of products": lambda c, x: (c, x * 0.7 - x * c),
    "carried": lambda c, x: ((c * 0.9 + x) * 0.7 - x * c, c),
    "quotients": lambda c, x: (c * 0.5 + x, c / (1 + x * x)),
    "roots": lambda c, x: (jnp.sqrt(jnp.abs(c)) + x, jnp.square(x) + c),
    "extremes": lambda c, x: (jnp.maximum(c * 0.5, x), jnp.minimum(c + 1, x * 3)),
}


def loop(body: Callable[..., Any]) -> Callable[..., Any]:
    return lambda init, xs: onescan.scan(body, init, xs)


@pytest.fixture(params=["float16", "bfloat16"])
def numbers(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    init, xs = rng.standard_normal(24), rng.standard_normal((40, 24))
    return init.astype(jnp.dtype(request.param)), xs.astype(jnp.dtype(request.param))


@pytest.mark.parametrize("name", BODIES)
def test_rounded_after_every_operation(name: str, numbers: tuple[Any, Any]) -> None:
    body = BODIES[name]
    native = run("native", loop(body), *numbers)
    with jax.disable_jit():
        one_by_one = lax.scan(body, *map(jnp.asarray, numbers))
    assert_same(native, one_by_one, rounding=0)


def test_a_missing_rounding_is_seen(numbers: tuple[Any, Any]) -> None:
    """The same loop in float32, rounded at the end of each step, is another."""
    body = BODIES["carried"]

    def wide(c: Any, x: Any) -> Any:
        out = body(c.astype(jnp.float32), x.astype(jnp.float32))
        return jax.tree.map(lambda v: v.astype(c.dtype), out)

    native, other = (run("native", loop(b), *numbers) for b in (body, wide))
    with pytest.raises(AssertionError, match="Mismatched elements"):
        assert_same(native, other, rounding=0)


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    """By whatever the processor has for it; what is too small may become zero."""
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 14, np.uint32)
    near = np.arange(1 << 12, dtype=np.uint32) * 0x1357 + 0x3F80_0000  # and ties
    xs = np.concatenate([bits, near, near & ~np.uint32(0xFFFF) | 0x8000])
    xs = xs.view(np.float32)
    xs = xs[np.isnan(xs) | (np.abs(xs) >= np.finfo(np.float32).tiny)]
    f = loop(lambda c, x: (c, x.astype(jnp.bfloat16)))
    (_, ours) = run("native", f, np.float32(0), xs[None])
    with np.errstate(invalid="ignore"):
        expected = xs[None].astype(jnp.bfloat16)
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(np.asarray(ours, np.float32)), nan)
    as_bits = lambda x: np.where(nan, 0, np.asarray(x).view(np.uint16))
    np.testing.assert_array_equal(as_bits(ours), as_bits(expected))


def test_what_is_given_back_keeps_its_bits() -> None:
    """Numbers too small to be normal too, which a rounding may make zero."""
    xs = np.arange(1 << 16, dtype=np.uint16).view(jnp.bfloat16)[None]
    xs = xs[:, ~np.isnan(xs[0].astype(np.float32))]

    def body(c: Any, x: Any) -> Any:
        return c, (-x, jnp.abs(x), jnp.where(x > 1, x, -x), x)

    _, ours = run("native", loop(body), np.float32(0), xs)
    expected = -xs, np.abs(xs), np.where(xs > 1, xs, -xs), xs
    for one, other in zip(ours, expected, strict=True):
        bits = [np.asarray(a).view(np.uint16) for a in (one, other)]
        np.testing.assert_array_equal(*bits)


def test_loops_and_branches_inside(numbers: tuple[Any, Any]) -> None:
    """What is known of a number in one block is not used in another."""

    def body(c: Any, x: Any) -> Any:
        most = jnp.maximum(c, x)
        less = -most
        again = lambda i, s: jnp.where(s > most, less, s * most + less)
        a = lax.fori_loop(0, 3, again, x)
        b = lax.cond(a.sum() > 0, lambda: jnp.minimum(most, a), lambda: -less)
        d = jnp.clip(a, -1, jnp.abs(b))
        return jnp.where(c < 0, -d, most) * c, (most, less, a, b, d, -c)

    native = run("native", loop(body), *numbers)
    with jax.disable_jit():
        one_by_one = lax.scan(body, *map(jnp.asarray, numbers))
    assert_same(native, one_by_one, rounding=0)
