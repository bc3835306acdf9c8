"""How many steps XLA runs at a time, of loops that it keeps on a GPU."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu_lowering import as_if_on, lowered

import onescan
from onescan import compat
from onescan.loop import LeaveToXla, Loop
from onescan.lowering import pipeline
from onescan.targets.nvidia.unrolling import unrolled_steps

W = np.eye(8, dtype=np.float32) / 2


def step(h, x):
    h = jnp.tanh(h @ W + x)
    return h, h


def loop_of(f: Any = step, length: int = 64, unroll: int = 1) -> Loop:
    h, xs = jnp.zeros((4, 8)), jnp.zeros((length, 4, 8))
    jaxpr = jax.make_jaxpr(lambda: jax.lax.scan(f, h, xs, unroll=unroll))()
    (eqn,) = (e for e in jaxpr.eqns if e.primitive.name == "scan")
    return compat.loop_of(eqn.params)


def longer(times: int) -> Any:
    def body(h, x):
        for _ in range(times):
            h, _ = step(h, x)
        return h, h

    return body


@pytest.mark.parametrize(
    ("loop", "steps"),
    [
        (loop_of(), 8),
        (loop_of(length=36), 8),  # and 4 that are left over
        (loop_of(longer(15)), 2),
        (loop_of(longer(100)), 1),
        (loop_of(length=2), 2),
        (loop_of(length=1), 1),
        (loop_of(unroll=3), 3),
    ],
)
def test_steps(loop: Loop, steps: int) -> None:
    assert unrolled_steps(loop) == steps


def test_steps_left_over_count_too() -> None:
    """Ten equations a step and seven steps left over would be 150 of them."""
    assert unrolled_steps(loop_of(longer(4), length=64)) == 8
    assert unrolled_steps(loop_of(longer(4), length=71)) < 8


def test_inner_loops_are_not_repeated() -> None:
    inner = lambda h, x: (jax.lax.fori_loop(0, 3, lambda i, h: h * 2, h) + x, None)
    assert unrolled_steps(loop_of(inner)) == 1


def test_large_steps_are_not_repeated() -> None:
    w = np.zeros((8, 8), np.float32)
    heavy = lambda h, x: (h @ w + x, None)
    assert unrolled_steps(loop_of(heavy)) > 1
    for most in ("LARGE", "MANY"):
        with mock.patch(f"onescan.targets.nvidia.unrolling.{most}", 4 * 8):
            assert unrolled_steps(loop_of(heavy)) == 1


@pytest.mark.parametrize(("numbers", "repeated"), [(32, True), (128, False)])
def test_long_running_sums_are_not_repeated(numbers: int, repeated: bool) -> None:
    """XLA does what comes before one again for each of its numbers."""
    w = np.ones((8, numbers), np.float32)
    body = lambda h, x: (h + jnp.cumsum(x @ w, axis=-1).sum(), None)
    assert (unrolled_steps(loop_of(body)) > 1) == repeated


# in a program


def left(*args: Any, **_: Any) -> Any:
    raise LeaveToXla("this test does")


def program(unroll: int = 1) -> tuple[str, Any]:
    """A loop of 40 steps left to XLA on a GPU as text, and its row of the report."""
    onescan.clear_report()

    def loop(h, xs):
        return onescan.scan(step, h, xs, unroll=unroll)

    args = jnp.zeros((4, 8)), jnp.zeros((40, 4, 8))
    with as_if_on(), mock.patch.object(pipeline, "planned", left):
        text = lowered(loop, *args)
    (row,) = onescan.report().rows
    return text, row


def test_the_body_is_written_out() -> None:
    text, row = program()
    assert "tensor<5x8x4x8xf32>" in text  # 5 times 8 steps
    assert row.engine == "xla"
    assert "had XLA run 8 steps at a time" in row.notes


def test_the_choice_of_the_user_holds() -> None:
    text, row = program(unroll=2)
    assert "tensor<20x2x4x8xf32>" in text
    assert not any("at a time" in note for note in row.notes)


def test_not_on_a_cpu() -> None:
    args = jnp.zeros((4, 8)), jnp.zeros((40, 4, 8))
    with mock.patch.object(pipeline, "planned", left):
        text = jax.jit(lambda h, xs: onescan.scan(step, h, xs)).lower(*args).as_text()
    assert "tensor<40x4x8xf32>" in text
    assert "tensor<5x8x4x8xf32>" not in text


@pytest.mark.parametrize(("sines", "leaves"), [(1, True), (100, False)])
def test_draws_leave_where_the_rest_is_then_written_out(sines, leaves) -> None:
    """Else XLA's loop would not be faster, and could be slower."""
    onescan.clear_report()

    def body(carry, _):
        key, x = carry
        key, use = jax.random.split(key)
        x = x + jax.random.normal(use, x.shape)
        for _ in range(sines):
            x = jnp.sin(x)
        return (key, x), None

    args = jax.random.key(0), jnp.zeros(64)
    with as_if_on(), mock.patch.object(pipeline, "planned", left):
        lowered(lambda *c: onescan.scan(body, c, None, 40), *args)
    *_, row = onescan.report().rows
    assert ("hoist" in row.passes) == leaves


@pytest.mark.parametrize(("sums", "leaves"), [(1, False), (6, True)])
def test_products_leave_where_enough_launches_are_left(sums, leaves) -> None:
    """XLA makes a graph of five launches, and launches fewer one by one."""
    onescan.clear_report()

    def body(h, x):
        h = h + x @ w
        for _ in range(sums):
            h = jnp.sin(h - h.sum())
        return h, None

    w = np.eye(64, dtype=np.float32)
    args = jnp.zeros((32, 64)), jnp.zeros((40, 32, 64))
    with (
        as_if_on(),
        mock.patch.object(pipeline, "planned", left),
        mock.patch("onescan.targets.nvidia.unrolling.MANY", 1),
    ):
        lowered(lambda h, xs: onescan.scan(body, h, xs), *args)
    (row,) = onescan.report().rows
    assert ("hoist" in row.passes) == leaves
