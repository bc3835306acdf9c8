"""Predictions for GPUs: what makes a step longer, and which loops XLA keeps."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from gpu_lowering import as_if_on, lowered
from jax import lax
from kernels import loop_in

import onescan
from onescan import compat
from onescan.plan.profile import Profile
from onescan.targets.nvidia import target
from onescan.tune import choose
from onescan.tune.gpu import HOPPER, by_xla, predicted
from onescan.tune.speed import Speed


def row_of(step: Any, *args: Any) -> Any:
    onescan.clear_report()
    with as_if_on():
        lowered(lambda *args: onescan.scan(step, *args), *args)
    (row,) = onescan.report().rows
    return row


def test_a_body_of_few_numbers_is_a_kernel() -> None:
    step = lambda c, x: (jnp.tanh(c) * x, c.sum())
    row = row_of(step, jnp.ones(256), jnp.ones(100))
    assert row.engine == "native"
    assert row.speed.ratio > 2


def test_a_body_that_one_block_takes_long_for_is_left() -> None:
    def step(c: Any, x: Any) -> Any:
        around = jnp.roll(c, 1, 0) + jnp.roll(c, 1, 1)
        for f in (jnp.sin, jnp.sin, jnp.sin):
            around = f(around)
        return around * x, c.mean()

    row = row_of(step, jnp.ones((130, 130)), jnp.ones(100))
    assert row.engine == "xla"
    assert row.reason.startswith("XLA is expected to be faster")
    with onescan.engine("native"):
        assert row_of(step, jnp.ones((130, 130)), jnp.ones(100)).engine == "native"


@pytest.mark.parametrize("f", [jnp.cumsum, jnp.argmax])
def test_all_threads_work_on_one_long_row(f: Any) -> None:
    """One thread alone would take thirty times as long."""
    row = row_of(lambda c, x: (jnp.sin(c) * x, f(c)), jnp.ones(1000), jnp.ones(100))
    assert row.engine == "native"
    assert row.speed.native < 5e-6


@pytest.mark.parametrize(("native", "engine"), [(2e-6, "xla"), (0.9e-6, "native")])
def test_where_predictions_are_close_both_are_tried(
    native: float, engine: str, monkeypatch: Any, tmp_path: Any
) -> None:
    """Between the two, the times of a trial count, and only where there is a GPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choose, "_choices", {})
    monkeypatch.setattr(target, "BORDER", choose.Border(sure=1e9, hopeless=0.0))
    found = Speed(native, 1e-6, measured=True)
    monkeypatch.setattr(target, "tried", lambda *args: found)
    step = lambda c, x: (jnp.tanh(c) * x, c.sum())
    with onescan.options(tune=True):
        assert not row_of(step, jnp.ones(256), jnp.ones(20_000)).speed.measured
        monkeypatch.setattr(compat, "runs_on_gpu", lambda: True)
        row = row_of(step, jnp.ones(256), jnp.ones(10_000))
    assert (row.engine, row.speed) == (engine, found)


@pytest.mark.parametrize(("native", "tries"), [(3e-6, False), (5e-6, True)])
def test_long_steps_are_tried_sooner(
    native: float, tries: bool, monkeypatch: Any, tmp_path: Any
) -> None:
    """2.5 times as fast is sure, unless one block is busy for microseconds."""
    tried = []

    def trial(*_: Any) -> Speed:
        tried.append(1)
        return Speed(native, 2.5 * native, measured=True)

    monkeypatch.setattr(target, "predicted", lambda *_: Speed(native, 2.5 * native))
    monkeypatch.setattr(target, "tried", trial)
    monkeypatch.setattr(compat, "runs_on_gpu", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choose, "_choices", {})
    step = lambda c, x: (jnp.tanh(c - c.mean()) * x + native, c.sum())
    with onescan.options(tune=True):
        assert row_of(step, jnp.ones(256), jnp.ones(5000)).engine == "native"
    assert bool(tried) == tries


@pytest.mark.parametrize(("native", "engine"), [(3e-6, "native"), (5e-6, "xla")])
def test_long_steps_that_nobody_can_try_must_be_clearly_faster(
    native: float, engine: str, monkeypatch: Any
) -> None:
    """1.3 times as fast is enough, unless one block is busy for microseconds."""
    monkeypatch.setattr(target, "predicted", lambda *_: Speed(native, 1.3 * native))
    step = lambda c, x: (jnp.tanh(c - c.mean()) * x + native, c.sum())
    row = row_of(step, jnp.ones(256), jnp.ones(50))
    assert row.engine == engine
    if engine == "xla":
        assert row.reason.startswith("a kernel is not expected to be clearly faster")


def test_what_instructions_cost() -> None:
    loop = loop_in(lambda c: lax.scan(lambda c, x: (c * c, None), c, None, 9), 0.0)

    def seconds(blocks: int = 1, threads: int = 32, **runs: float) -> float:
        named = {(name.replace("_", " "), "float"): 9.0 * n for name, n in runs.items()}
        times = predicted(loop, Profile(named, {}), blocks, threads, cores=132)
        assert times.native is not None
        return 1e9 * times.native

    assert seconds(load=1) == pytest.approx(HOPPER.turn)
    assert seconds(fdiv=2) == pytest.approx(2 * HOPPER.division)
    assert seconds(**{"call llvm.sqrt.f32": 2}) == pytest.approx(2 * HOPPER.root)
    assert seconds(**{"call llvm.nvvm.barrier0": 1}) == pytest.approx(HOPPER.barrier)
    team = "call llvm.nvvm.barrier.cluster.wait.aligned"
    assert seconds(**{team: 1}) == pytest.approx(HOPPER.meeting)
    assert seconds(load=1, br=1) == pytest.approx(HOPPER.access + HOPPER.branch)
    assert seconds(fadd=1, br=1) == pytest.approx(HOPPER.operation + HOPPER.branch)
    assert seconds(132, load=1) == seconds(load=1) < seconds(264, load=1)
    # many threads take turns, each instruction after the other
    assert seconds(threads=1024, load=1) == pytest.approx(8 * HOPPER.turn)
    assert seconds(threads=1024, br=1) == pytest.approx(HOPPER.branch)
    eight = 8 * HOPPER.turns_of_division * HOPPER.turn
    assert seconds(threads=1024, fdiv=1) == pytest.approx(eight)


def test_blocks_wait_for_what_they_stream() -> None:
    f = lambda c, xs: lax.scan(lambda c, x: (c + x.sum(), None), c, xs)
    loop = loop_in(f, 0.0, jnp.ones((9, 4096, 64)))
    none = Profile({}, {})
    alone, many = (predicted(loop, none, n, 32, cores=132).native for n in (1, 64))
    assert alone == pytest.approx(1e-9 * HOPPER.streamed_byte * 4096 * 64 * 4)
    assert alone == pytest.approx(64 * (many or 0))


def test_lanes_that_must_do_too_much_are_left(monkeypatch: Any) -> None:
    """Each thread of a lane does what all lanes share, however much that is."""
    for native, engine in ((1e-6, "native"), (1.9e-6, "native"), (2.1e-6, "xla")):
        monkeypatch.setattr(target, "predicted", lambda *_, n=native: Speed(n, 1e-6))
        step = lambda c, x, n=native: (jnp.tanh(c) * x + n, None)
        assert row_of(step, jnp.ones(4096), jnp.ones(100)).engine == engine


def test_a_choice_of_two_is_no_launch() -> None:
    def seconds(yes: Any) -> float:
        step = lambda c, x: (lax.cond(x > 0, yes, lambda c: c * 0.5, c), None)
        loop = loop_in(lambda *args: lax.scan(step, *args), jnp.ones((4, 4)), X)
        return 1e9 * by_xla(loop)

    X = jnp.ones(9)
    assert seconds(lambda c: c * 0.9 + 0.1) == pytest.approx(HOPPER.xla_step, rel=0.01)
    assert seconds(lambda c: jnp.sort(c)) > HOPPER.xla_step + HOPPER.xla_round


def test_what_xla_launches() -> None:
    def seconds(step: Any, *args: Any) -> float:
        return by_xla(loop_in(lambda *args: lax.scan(step, *args), *args))

    c, xs = jnp.ones((4, 4)), jnp.ones(9)
    plain = seconds(lambda c, x: (c + x, None), c, xs)
    product = seconds(lambda c, x: (c @ c + x, None), c, xs)
    inner = lambda c: lax.fori_loop(0, 5, lambda _, c: jnp.sin(c), c)
    assert plain == pytest.approx(1e-9 * HOPPER.xla_step, rel=0.01)
    assert product - plain == pytest.approx(1e-9 * HOPPER.xla_product, rel=0.01)
    rounds = seconds(lambda c, x: (inner(c) + x, None), c, xs) - plain
    assert rounds == pytest.approx(5e-9 * HOPPER.xla_round, rel=0.01)
