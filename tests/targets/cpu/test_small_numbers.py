"""Vectors of small numbers: as many as a register holds, where all are small."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from compare import assert_same
from jax import lax
from kernels import by_kernel, by_xla, inputs_of, loop_in

from onescan.targets.cpu.machine import Machine, host
from onescan.targets.cpu.plan import choose

STEPS = {
    "shifted": lambda x: x | jnp.roll(x, 1, 0),
    "along rows": lambda x: x ^ jnp.roll(x, 3, 1)[::-1],
    "padded": lambda x: jnp.maximum(x, jnp.pad(x, ((0, 0), (5, 0)))[:, :-5]),
    "reduced": lambda x: x ^ x.max(1, keepdims=True),
    "sorted": lambda x: jnp.sort(x, 1)[::-1],
    "put together": lambda x: jnp.concatenate([x[:, 7:], x[::-1, :7]], 1),
    "set": lambda x: x.at[3, 5].set(x[1, 2]),
}


def loop_of(step: Any, dtype: str, columns: int) -> Any:
    return loop_in(
        lambda x, n: lax.scan(lambda x, _: (step(x), x[0]), x, n),
        jnp.zeros((6, columns), dtype),
        jnp.arange(5.0),
    )


def width(step: Any, dtype: str, columns: int) -> int:
    return choose(loop_of(step, dtype, columns), Machine(64, 1)).inner_width


def test_how_many_numbers_a_vector_has() -> None:
    shifted = STEPS["along rows"]
    assert width(shifted, "bool", 100) == 64
    assert width(shifted, "int8", 90) == 64
    assert width(shifted, "uint16", 100) == 32
    assert width(shifted, "int32", 100) == 16
    assert width(shifted, "uint8", 60) == 16  # rows end within such a vector
    wider = lambda x: shifted(x).astype("int16").astype("int8")
    assert width(wider, "int8", 100) == 32
    halves = lambda x: x * jnp.bfloat16(0.5) + jnp.roll(x, 1, 1)
    assert width(halves, "bfloat16", 100) == 16  # of 32 bits in registers


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16"])
def test_steps(name: str, dtype: str) -> None:
    for columns in (64, 101):
        loop = loop_of(STEPS[name], dtype, columns)
        inputs = inputs_of(loop)
        expected = by_xla(loop, inputs)
        for size in (host().vector_bytes, 16):
            plan = choose(loop, Machine(size, 1, host().features))
            assert_same(by_kernel(plan, inputs), expected)
