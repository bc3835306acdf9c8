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
