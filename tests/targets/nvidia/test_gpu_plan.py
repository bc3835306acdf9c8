"""How loops lie over a GPU: golden launches, and the logic behind them."""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from gpu_lowering import H200, launches_of, plans_of, shown
from llvmlite import ir

import onescan
from onescan.runtime import compiler
from onescan.targets.nvidia import block_plan as gpu
from onescan.targets.nvidia.flat_index import flattened, unflattened
from onescan.targets.nvidia.machine import Chip
from onescan.targets.nvidia.plan import MOST

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import gpu_cases
from rnn import cell_case

BENCHMARKS = {case.name: case for case in gpu_cases.CASES}
#: the launches on an H200; run as a program, this file writes them anew
FILE = Path(__file__).parent / "gpu_launches.txt"
GOLDEN = dict(line.split(": ", 1) for line in FILE.read_text().splitlines())


def launches(name: str) -> str:
    """The launches of a loop of the benchmark, in a line."""
    fn, args = BENCHMARKS[name].build()
    pairs = plans_of(partial(fn, onescan.scan, 1), *args)
    return "; ".join(shown(plan, kernel) for plan, kernel in pairs)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_launches(name: str) -> None:
    """A change of the plan changes these; it should have been measured."""
    assert launches(name) == GOLDEN[name]


# loops for the logic alone


def elementwise(*shape: int) -> Any:
    """A loop in which every axis is a lane."""
    step = lambda c, x: (jnp.sin(c) + x, c)
    args = np.zeros(shape, np.float32), np.zeros((4, *shape), np.float32)
    return lambda c, xs: onescan.scan(step, c, xs), *args


def network(batch: int, hidden: int) -> Any:
    """A loop in which only the batch is a lane."""
    step = lambda h, x: (jnp.tanh(h @ w + x), h)
    w = np.zeros((hidden, hidden), np.float32)
    h = np.zeros((batch, hidden), np.float32)
    xs = np.zeros((4, batch, hidden), np.float32)
    return lambda h, xs: onescan.scan(step, h, xs), h, xs


def only_plan(program: Any, chip: Chip = H200) -> Any:
    (pair,) = plans_of(*program, chip=chip)
    return pair


@pytest.mark.parametrize(
    "shape",
    [(1,), (31,), (32,), (33,), (1000,), (4097,), (5, 7), (3, 1, 11), (70_000,)],
)
def test_every_lane_has_one_thread(shape: tuple[int, ...]) -> None:
    plan, kernel = only_plan(elementwise(*shape))
    lanes = prod(shape)
    assert not plan.grid.together
    assert plan.tiles == lanes
    assert lanes <= kernel.blocks * kernel.threads < lanes + kernel.threads
    assert kernel.threads % gpu.WARP == 0
    assert (kernel.team, kernel.shared) == (1, 0)


def with_common(lanes: int, n: int, wide: int = 1) -> Any:
    """Lanes that all read a matrix, another one in every step, as Kalman filters do."""

    def step(carry, x):
        p, m, table = carry
        p = p @ p / (1 + jnp.sum(p * p))
        table = table.at[0].add(p[0, 0])
        return (p, m @ p + x, table), m[:, 0] * table[-1]

    shapes = (n, n), (lanes, n), (wide,)
    carry = tuple(np.zeros(shape, np.float32) for shape in shapes)
    xs = np.zeros((4, lanes, n), np.float32)
    return lambda carry, xs: onescan.scan(step, carry, xs), carry, xs


@pytest.mark.parametrize(("lanes", "n"), [(2, 4), (1000, 2), (100_000, 4)])
def test_every_thread_does_what_lanes_have_in_common(lanes: int, n: int) -> None:
    plan, kernel = only_plan(with_common(lanes, n))
    assert not plan.grid.together
    assert kernel.blocks * kernel.threads >= lanes


def test_unless_it_cannot_hold_that_or_takes_longer() -> None:
    plan, _ = only_plan(with_common(1000, 4))
    assert plan.grid.together
    plan, _ = only_plan(with_common(1000, 4, wide=5000))
    assert plan.grid.together
    # an output of its own axis, for each position of which threads would do all again
    step = lambda c, x: (jnp.sin(c) * x, (c, jnp.arange(60.0) * x))
    args = np.zeros(5000, np.float32), np.zeros(4, np.float32)
    plan, _ = only_plan((lambda c, xs: onescan.scan(step, c, xs), *args))
    assert plan.tiles == 5000


def test_few_lanes_take_small_blocks_of_many_multiprocessors() -> None:
    _, few = only_plan(elementwise(32 * H200.cores))
    assert (few.blocks, few.threads) == (H200.cores, gpu.WARP)
    _, many = only_plan(elementwise(1000 * H200.cores))
    assert many.threads == MOST
    _, smaller_chip = only_plan(elementwise(32 * H200.cores), Chip(90, 16))
    assert smaller_chip.threads > few.threads


def test_neighbours_differ_along_the_innermost_axis() -> None:
    """So that the loads of a warp are of one piece."""
    step = lambda c, x: (c - c.sum(1, keepdims=True) + x, c)
    args = np.zeros((40, 3, 50), np.float32), np.zeros((4, 40, 3, 50), np.float32)
    plan, _ = only_plan((lambda c, xs: onescan.scan(step, c, xs), *args))
    assert [lane.size for lane in plan.lanes] == [40, 50]


@pytest.mark.parametrize("batch", [1, 7, 132, 133, 265, 1000, 5000])
def test_every_lane_is_in_one_block(batch: int) -> None:
    plan, kernel = only_plan(network(batch, 64))
    rows = prod(lane.extent for lane in plan.lanes)
    assert plan.grid.together
    assert rows * (kernel.blocks - 1) < batch <= rows * kernel.blocks
    assert rows <= gpu.ROWS
    assert kernel.shared <= H200.shared
    # no lane waits for a second round while there is room for it
    assert rows == 1 or rows == gpu.ROWS or kernel.blocks >= H200.cores


@pytest.mark.parametrize(("hidden", "team"), [(64, 1), (128, 1), (256, 4), (384, 8)])
def test_teams_grow_with_the_weights(hidden: int, team: int) -> None:
    fn, args = cell_case("gru", "forward", 8, hidden, 4).build()
    ((plan, kernel),) = plans_of(partial(fn, onescan.scan, 1), *args)
    assert kernel.team == team
    weights = 3 * hidden * hidden
    held = kernel.team * kernel.threads * gpu.SIZES[kernel.threads] * gpu.SPILLED
    assert held >= weights
    assert plan.grid.unit == (hidden if team > 1 else 0)


def test_no_teams_before_there_were_clusters() -> None:
    assert gpu._team(3 * 256 * 256, Chip(90, 132)) > 1
    assert gpu._team(3 * 256 * 256, Chip(86, 84)) == 1


@pytest.mark.parametrize(
    ("weights", "largest", "threads"),
    [
        (0, 0, 32),
        (0, 100_000, 256),
        (6336, 0, 32),
        (6337, 0, 64),
        (49_152, 0, 256),  # a GRU of 128
        (65_536, 0, 512),  # an LSTM of 128: more than registers hold
        (100, 24 * 128, 128),
    ],
)
def test_threads_for_weights_and_work(
    weights: int, largest: float, threads: int
) -> None:
    assert gpu._threads(weights, largest / gpu.EACH) == threads


@pytest.mark.parametrize(
    ("weights", "lanes", "largest", "blocks"),
    [
        (4480, 2048, 4096, 4),
        (4480, 500, 4096, 2),  # too few lanes to give all of them some
        (1024, 1024, 1024, 2),  # too little to do for their threads
        (0, 2048, 4096, 2),
        (10_000, 2048, 4096, 2),
        (49_152, 2048, 4096, 1),
    ],
)
def test_blocks_of_a_multiprocessor(
    weights: int, lanes: int, largest: float, blocks: int
) -> None:
    assert gpu._blocks(weights, lanes, largest, H200) == blocks


def test_fewer_lanes_where_a_block_is_too_small() -> None:
    """32 lanes of 512 numbers, twice, are more than half of what this chip gives."""
    f = lambda c: onescan.scan(lambda c, _: (0.5 * c[:, ::-1], None), c, None, 5)
    program = f, np.ones((5000, 512), np.float32)
    large, small = Chip(90, 20), Chip(75, 20)
    plan, kernel = only_plan(program, large)
    assert prod(lane.extent for lane in plan.lanes) == gpu.ROWS
    assert kernel.shared > small.shared
    *_, (plan, kernel) = plans_of(*program, chip=small)
    rows = prod(lane.extent for lane in plan.lanes)
    assert 1 < rows < gpu.ROWS
    assert kernel.shared <= small.shared
    assert kernel.blocks == -(-5000 // rows)


def test_a_block_may_have_what_the_chip_gives() -> None:
    assert Chip(90, 132).shared == 227 << 10
    assert Chip(80, 108).shared == 163 << 10
    assert Chip(89, 128).shared == 99 << 10  # as of the smallest not in the table


# numbers of elements and their indices

SHAPES = [
    (1,),
    (7,),
    (3, 5),
    (1, 4),
    (4, 1),
    (2, 3, 4),
    (5, 1, 3),
    (1, 1),
    (2, 1, 1, 6),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_and_indices_by_hand(shape: tuple[int, ...]) -> None:
    for k, index in enumerate(np.ndindex(shape)):
        assert unflattened(None, k, shape) == index
        assert flattened(None, index, shape) == k


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_and_indices_in_code(shape: tuple[int, ...]) -> None:
    """`f(number, indices)` writes the indices, and gives the number back."""
    i64, pointer = ir.IntType(64), ir.PointerType()
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(i64, [i64, pointer]), "f")
    b: Any = ir.IRBuilder(function.append_basic_block())
    value = lambda x: ir.Constant(i64, x) if isinstance(x, int) else x
    index = unflattened(b, function.args[0], shape)
    for k, i in enumerate(index):
        place = b.gep(function.args[1], [ir.Constant(i64, k)], source_etype=i64)
        b.store(value(i), place)
    b.ret(value(flattened(b, index, shape)))
    address = compiler.link(str(module), ["f"]).kept()["f"]
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(address)
    found = np.zeros(len(shape), np.int64)
    for k, index in enumerate(np.ndindex(shape)):
        assert call(k, found.ctypes.data) == k
        assert tuple(found) == index


# what is left to XLA


def reason(f: Any, *args: Any, chip: Chip = H200) -> str | None:
    onescan.clear_report()
    assert launches_of(f, *args, chip=chip) == []
    (row,) = onescan.report().rows
    assert row.engine == "xla"
    return row.reason


def flips(count: int, size: int) -> Any:
    step = lambda c, _: (tuple(x[::-1] for x in c), None)
    carry = tuple(np.ones(size, np.float32) for _ in range(count))
    return lambda c: onescan.scan(step, c, None, 5), carry


def test_large_work_is_left() -> None:
    square = np.ones((300, 300), np.float32)
    f = lambda c: onescan.scan(lambda c, _: (jnp.tanh(c @ c), None), c, None, 5)
    assert reason(f, square) == (
        "each step has 28.4 million operations for a block of GPU threads, which XLA's "
        "own kernels spread better"
    )


def test_too_much_for_a_thread_is_for_a_block() -> None:
    plan, _ = only_plan(flips(2, 16))
    assert not plan.grid.together
    plan, _ = only_plan(flips(17, 64))
    assert plan.grid.together


def test_a_block_where_a_thread_takes_long() -> None:
    """Of what one thread could do, if slowly, some threads each have a part."""
    loops = [network(lanes, 16) for lanes in (1, 8)]
    assert all(only_plan(loop)[0].grid.together for loop in loops)
    many, _ = only_plan(network(100_000, 16))
    assert not many.grid.together


@pytest.mark.parametrize(("bodies", "threads"), [(3, 32), (16, 256), (32, 512)])
def test_threads_for_each_pair(bodies: int, threads: int) -> None:
    """A thread for each number that is computed, until they are as many as it pays."""

    def step(x: Any, _: Any) -> Any:
        apart = x[None] - x[:, None]
        square = (apart**2).sum(-1) + 0.1
        return x + 0.01 * (apart / (square * jnp.sqrt(square))[..., None]).sum(1), ()

    f = lambda x: onescan.scan(step, x, None, length=100)
    plan, _ = only_plan((f, np.ones((bodies, 3), np.float32)))
    assert plan.grid.threads == threads


def test_too_much_for_a_block_is_left() -> None:
    expected = "one step holds 500 KiB of values, more than the {} KiB that a block of "
    expected += "GPU threads can keep"
    assert reason(*flips(8, 8000)) == expected.format(227)
    assert reason(*flips(8, 8000), chip=Chip(80, 108)) == expected.format(163)


def test_too_many_weights_are_left() -> None:
    expected = "a product's {} weights do not fit into one multiprocessor of the GPU"
    assert reason(*network(1, 1024)) == expected.format(1024**2)
    assert reason(*network(1, 512), chip=Chip(80, 108)) == expected.format(512**2)


def test_one_step_is_left() -> None:
    f = lambda c: onescan.scan(lambda c, _: (c + 1, None), c, None, 1)
    assert reason(f, 1.0) == "a loop of one step needs no loop"


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_types_without_a_rule_are_left(name: str) -> None:
    """To numpy the second is a float like others, of one byte."""
    f = lambda c: onescan.scan(lambda c, _: (c * c, None), c, None, 3)
    small = jnp.dtype(name).type(1)
    assert reason(f, jnp.asarray(small)) == f"{name} values have no native rule"


if __name__ == "__main__":
    FILE.write_text("".join(f"{name}: {launches(name)}\n" for name in BENCHMARKS))
