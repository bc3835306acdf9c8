"""Arrays with no elements, in a body and among the outputs of a loop."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from engines import assert_engines_agree
from gpu_lowering import launches_of
from ptx_text import count

import onescan


def test_reshaped() -> None:
    def body(c: Any, _: Any) -> Any:
        total = jnp.zeros((3, 0)).reshape(0).sum() + c[:0].reshape(2, 0).sum()
        total += jnp.sort(c[:0]).sum() + jnp.argsort(c[:0].reshape(2, 0)).sum()
        return c + total, (c[:0].reshape(0, 4), c[:0].reshape(2, 0, 3)[None])

    _, (narrow, wide) = assert_engines_agree(
        lambda c: onescan.scan(body, c, None, 3), jnp.ones(3)
    )
    assert narrow.shape == (3, 0, 4)
    assert wide.shape == (3, 1, 2, 0, 3)


def test_a_block_of_threads_writes_nothing() -> None:
    """Its result has no address, so a store would end the process."""

    def loop(empty: bool, c: Any, xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            new = jnp.tanh(jnp.cumsum(c) * (c @ c)) + x
            nothing = jnp.zeros((2, 0), bool) | (c[0] > 0)
            return new, (nothing, c[:0].reshape(0, 3)) if empty else ()

        return onescan.scan(body, c, xs)

    args = jnp.ones(300), jnp.ones((5, 300))
    (plain,) = launches_of(lambda *a: loop(False, *a), *args)
    (launch,) = launches_of(lambda *a: loop(True, *a), *args)
    assert launch.warps > 1
    assert launch.buffers == plain.buffers + 2
    assert count("st.global", launch.code) == count("st.global", plain.code) > 0
