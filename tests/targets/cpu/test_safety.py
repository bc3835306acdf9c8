"""Kernels stay inside their buffers, whatever the sizes and positions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from engines import kernels_alone
from jax import lax
from kernels import by_kernel, by_xla, inputs_of, kernel_of, loop_in, plan_of
from sampling import WHOLE

from onescan.targets.cpu.kernel import optimised_ir

SIZES = (1, 2, 3, 5, 15, 17, 33, 63, 65, 100)
STEPS = 3
F, I = np.float32, np.int32


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


def zeros(*shapes: tuple[int, ...], dtype: Any = F) -> list[Any]:
    return [np.zeros(shape, dtype) for shape in shapes]


def elementwise(n: int) -> tuple[Callable[..., Any], list[Any]]:
    step = lambda c, x: (jnp.sin(c) + x, c * x)
    return lambda c, xs: lax.scan(step, c, xs), zeros((n,), (STEPS, n))


def states_alone(n: int) -> tuple[Callable[..., Any], list[Any]]:
    """No xs and no ys, and more numbers at once than fit in registers."""

    def step(c: Any, _: Any) -> Any:
        waves = [jnp.sin(c[k % 6] + k + c[k % 5]) for k in range(24)]
        parts = [sum(waves[k::6], start=waves[-k]) for k in range(6)]
        return tuple(p * waves[4 * k] / 5 for k, p in enumerate(parts)), None

    return lambda *c: lax.scan(step, c, None, STEPS), zeros(*[(n,)] * 6)


def narrow(n: int) -> tuple[Callable[..., Any], list[Any]]:
    """Types of one and two bytes."""

    def step(c: Any, x: Any) -> Any:
        small, half, flag = x
        return jnp.where(flag, c + small, c), (half * 2, ~flag)

    xs = [np.zeros((STEPS, n), d) for d in (np.int8, np.float16, np.bool_)]
    return lambda c, *xs: lax.scan(step, c, xs), [np.zeros(n, np.int8), *xs]


def lanes_last(n: int) -> tuple[Callable[..., Any], list[Any]]:
    """A small state for each lane, in three arrangements."""
    step = lambda c, x: (jnp.cumsum(c) * x, c[::-1])
    scan = lambda c, x: lax.scan(step, c, x)
    return jax.vmap(scan, (0, 1), (1, 2)), zeros((n, 3), (STEPS, n))


def matrices(n: int) -> tuple[Callable[..., Any], list[Any]]:
    step = lambda c, w: (jnp.tanh(w @ c), c.sum())
    return lambda c, w: lax.scan(step, c, w), zeros((n,), (STEPS, n, n))


def batched_matrices(n: int) -> tuple[Callable[..., Any], list[Any]]:
    step = lambda c, x: (jnp.tanh(c @ c.T @ c) + x, c.max(0))
    scan = lambda c, x: lax.scan(step, c, x)
    return jax.vmap(scan), zeros((n, 3, 5), (n, STEPS))


def reading_anywhere(n: int) -> tuple[Callable[..., Any], list[Any]]:
    """Gathers and slices at positions of any size; the integers are random."""

    def step(i: Any, x: Any) -> Any:
        ys = x[i], x.at[i].get(mode="clip"), lax.dynamic_slice(x, (i,), (n // 2 + 1,))
        return i * 3 + 1, (*ys, x.at[i - n].get(mode="fill", fill_value=7))

    args = [np.zeros((), I), *zeros((STEPS, n))]
    return lambda i, xs: lax.scan(step, i, xs), args


def writing_anywhere(n: int) -> tuple[Callable[..., Any], list[Any]]:
    def step(c: Any, x: Any) -> Any:
        i, u = x
        c = c.at[i].add(u, mode="drop")
        c = c.at[jnp.stack([i, i + 1, -i])].max(u, mode="clip")
        return lax.dynamic_update_slice(c, c[: n // 2] * u, (i,)), c[0]

    xs = [np.zeros(STEPS, I), *zeros((STEPS,))]
    return lambda c, *xs: lax.scan(step, c, xs), [*zeros((n,)), *xs]


def lookup_by_lane(n: int) -> tuple[Callable[..., Any], list[Any]]:
    """Each lane reads and writes its own row, at its own position."""

    def step(c: Any, i: Any) -> Any:
        return c.at[i].set(c[i - 1] + 1, mode="drop"), c.at[i].get(mode="fill")

    scan = lambda c, i: lax.scan(step, c, i)
    return jax.vmap(scan), [*zeros((n, 5)), np.zeros((n, STEPS), I)]


def rounds_by_lane(n: int) -> tuple[Callable[..., Any], list[Any]]:
    """Each lane goes through its own row, for as long as it finds what it wants."""

    def step(c: Any, i: Any) -> Any:
        goes_on = lambda s: (s[0] < 7) & (s[1][s[0]] < 1)
        look = lambda s: (s[0] + 1, s[1].at[s[0] - 2].add(1), s[2] + s[1][i])
        k, c, total = lax.while_loop(goes_on, look, (i % 3, c, jnp.zeros((), F)))
        return c, (k, total)

    scan = lambda c, i: lax.scan(step, c, i)
    return jax.vmap(scan), [*zeros((n, 5)), np.zeros((n, STEPS), I)]


LOOPS = {
    f.__name__: f
    for f in (
        elementwise,
        states_alone,
        narrow,
        lanes_last,
        matrices,
        batched_matrices,
        reading_anywhere,
        writing_anywhere,
        lookup_by_lane,
        rounds_by_lane,
    )
}


@pytest.mark.parametrize("name", LOOPS)
def test_no_access_leaves_its_buffer(name: str) -> None:
    # every other one, in turns
    sizes = SIZES if WHOLE else SIZES[list(LOOPS).index(name) % 2 :: 2]
    for size in sizes:
        if name == "matrices" and size > 33:
            continue
        f, args = LOOPS[name](size)
        loop = loop_in(f, *args)
        plan, inputs = plan_of(loop), inputs_of(loop, seed=size)
        expected = by_xla(loop, inputs)
        for side in ("end", "start"):
            assert_same(by_kernel(plan, inputs, side), expected)


INDEPENDENT = ["elementwise", "states_alone", "lanes_last", "batched_matrices"]


@pytest.mark.parametrize("name", INDEPENDENT)
def test_tiles_are_independent(name: str) -> None:
    """In any order, each tile does its own part and no other."""
    f, args = LOOPS[name](100)
    loop = loop_in(f, *args)
    plan, inputs = plan_of(loop), inputs_of(loop)
    together, apart = by_kernel(plan, inputs), by_kernel(plan, inputs, one_by_one=True)
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_array_equal(a, b)


def test_blocks_fill_tiles_evenly() -> None:
    """A tile of several blocks does few positions more than there are."""
    for size in (64, 100, 130, 257, 1000):
        f, args = states_alone(size)
        plan = plan_of(loop_in(f, *args))
        lane = plan.vector
        assert lane is not None
        assert lane.blocks > 1
        done = lane.tiles * lane.blocks * lane.extent
        assert done - size < lane.tiles * lane.extent


@pytest.mark.parametrize("reverse", [False, True])
def test_fetching_ahead_leaves_no_trace(reverse: bool) -> None:
    """The first and the last step ask for memory that is not there."""

    def recurrent(h: Any, w: Any, xs: Any) -> Any:
        step = lambda h, x: (jnp.tanh(0.05 * (h @ w) + x), h)
        return lax.scan(step, h, xs, reverse=reverse)

    loop = loop_in(recurrent, *zeros((16, 128), (128, 128), (STEPS, 16, 128)))
    plan, inputs = plan_of(loop), inputs_of(loop)
    text = optimised_ir(kernel_of(plan))
    assert len(re.findall(r"call void @llvm.prefetch", text)) > 1
    for side in ("end", "start"):
        assert_same(by_kernel(plan, inputs, side), by_xla(loop, inputs))


def test_a_wrong_result_is_seen() -> None:
    f, args = elementwise(17)
    loop = loop_in(f, *args)
    inputs = inputs_of(loop)
    wrong = [np.roll(x, 1, -1) for x in by_xla(loop, inputs)]
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same(by_kernel(plan_of(loop), inputs), wrong)
