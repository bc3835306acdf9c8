"""Tiles along a lane axis: what they do, they do once."""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax
from kernels import loop_in
from passing import loop_of

from onescan.targets.cpu.machine import Machine
from onescan.targets.cpu.plan import choose


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("size", [1000, 6200, 10240, 25000, 100_000])
def test_tiles_are_even(size: int, cores: int) -> None:
    """A row that the L1 cache holds was one tile, and what was left another as long."""

    def step(c: Any, x: Any) -> Any:
        return c * 0.9 + jnp.tanh(x), None

    loop = loop_in(
        lambda c, xs: lax.scan(step, c, xs), jnp.zeros(size), jnp.zeros(5000)
    )
    plan = choose(loop, Machine(64, cores, l1=48 << 10))
    done = plan.tiles * prod(lane.extent * lane.blocks for lane in plan.lanes)
    assert done < 1.1 * size + 64 * cores


@pytest.mark.parametrize(("rows", "lanes"), [(100, 64), (200, 32), (500, 16)])
def test_a_block_whose_step_is_little_work_fits_the_cache(
    rows: int, lanes: int
) -> None:
    """Four vectors of 200 numbers each lay in the second cache."""

    def step(c: Any, _: Any) -> Any:
        grid, row = c
        return (grid * 0.9 + row, jnp.tanh(row)), row

    carry = jnp.zeros((rows, 128)), jnp.zeros(128)
    loop = loop_in(lambda c: lax.scan(step, c, None, length=50), carry)
    plan = choose(loop, Machine(64, 2, l1=48 << 10))
    (lane,) = plan.lanes
    assert lane.extent == lanes


def test_a_step_of_no_work_and_no_carry() -> None:
    """Found by random loops: how often nothing fits the cache is no number."""
    copied, _ = loop_of(lambda c, x: (c, x), (), jnp.zeros((3, 64)), raw=True)
    assert choose(copied, Machine(64, 2, l1=48 << 10)).tiles
