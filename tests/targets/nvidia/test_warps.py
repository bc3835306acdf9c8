"""Which warps do the small operations of a block, and what they wait for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from gpu_lowering import launches_of
from ptx_text import count

import onescan
from onescan.targets.nvidia.warps import Warps

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import rl

A, B, C = 1, 2, 3  # memories


def phase(warps: Warps, count: int, *touched: int, met: Iterable[int] = ()) -> int:
    """A phase of few threads, after the memories it has to wait for; its place."""
    warps.begin()
    first = warps.take(count, 128, set(touched))
    alone = warps.is_one_warp(set(touched))
    warps.end(set(touched), warps.warp_of(met) if alone else None)
    return first.constant


def test_side_by_side_where_nothing_is_shared() -> None:
    warps = Warps()
    assert [phase(warps, 8, memory) for memory in (A, B, C)] == [0, 32, 64]


def test_round_the_block() -> None:
    warps = Warps()
    assert [phase(warps, 33) for _ in range(3)] == [0, 64, 0]


def test_with_the_warp_that_it_needs() -> None:
    warps = Warps()
    phase(warps, 8, A)
    assert phase(warps, 8, B) == 32
    assert phase(warps, 8, A, C, met={A}) == 0
    assert phase(warps, 32, B, met={B}) == 32


def test_two_warps_are_no_warp() -> None:
    warps = Warps()
    phase(warps, 8, A)
    phase(warps, 8, B)
    assert warps.warp_of({A, B}) is None
    phase(warps, 8, A)  # which another warp touches too
    assert warps.warp_of({A}) is None


def test_larger_operations_are_of_no_warp() -> None:
    warps = Warps()
    phase(warps, 33, A)
    assert warps.warp_of({A}) is None
    warps.begin()  # all threads
    warps.end({B}, None)
    assert warps.warp_of({B}) is None


def test_memory_that_others_touch_beside() -> None:
    """A phase of which only a part is for few."""
    warps = Warps()
    warps.begin()
    warps.take(8, 128, {A})
    assert not warps.is_one_warp({A, B})


def test_after_all_have_met() -> None:
    warps = Warps()
    phase(warps, 8, A)
    warps.met()
    assert warps.warp_of({A}) is None


# in a kernel


def test_small_operations_wait_for_their_warp() -> None:
    """Of a cart-pole: logits, choice, motion and results, of four environments."""
    fn, args = rl.rollout_case(2048).build()
    launches = launches_of(partial(fn, onescan.scan, 1), *args)
    (code,) = (launch.code for launch in launches if launch.blocks > 1)
    assert count("bar.warp.sync", code) == 4
    assert count("bar.sync", code) == 7  # two of them are not in the loop
