"""What users ask of JAX does not reach what the engine traces by itself."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from engines import assert_engines_agree
from jax import lax

import onescan
from onescan import switches

MATRIX = 2 * jnp.eye(3, dtype=jnp.complex64) + 1j


def factors(c: Any, _: Any) -> Any:
    return lax.linalg.lu(MATRIX + c[:, None] * c[None])[0][0] / 8, None


def of_many(c: Any, x: Any) -> Any:
    key, c = c
    c = jnp.sort(c) * x + jnp.cumsum(c) + jax.random.normal(key, c.shape)
    return (jax.random.fold_in(key, 3), jnp.tanh(c)), c.mean()


SETTINGS = {
    "shapes": [lambda: jax.numpy_rank_promotion("raise")],
    "types": [lambda: jax.numpy_dtype_promotion("strict")],
    "both": [
        lambda: jax.numpy_rank_promotion("raise"),
        lambda: jax.numpy_dtype_promotion("strict"),
    ],
    "leaks": [jax.checking_leaks],
    "checks": [lambda: jax.enable_checks(True)],
    "transfers": [lambda: jax.transfer_guard("disallow")],
    "nan": [lambda: jax.debug_nans(True)],
    "precision": [lambda: jax.default_matmul_precision("highest")],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_loops_are_kernels(name: str) -> None:
    one = jnp.full(3, 1 + 0.5j, jnp.complex64)
    several = jax.random.key(0), jnp.linspace(0, 1, 12)
    xs = jnp.linspace(0.1, 0.9, 9)
    with ExitStack() as stack:
        for setting in SETTINGS[name]:
            stack.enter_context(setting())
        stack.enter_context(switches.using(installed=True))  # for the while loop
        assert_engines_agree(lambda c: onescan.scan(factors, c, None, 9), one, ulps=64)
        assert_engines_agree(lambda c: onescan.scan(of_many, c, xs), several, ulps=1000)
        assert_engines_agree(
            lambda z: lax.while_loop(
                lambda z: jnp.abs(z).sum() < 9, lambda z: 2 * z, z
            ),
            one,
        )
