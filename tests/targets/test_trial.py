"""Trials: the kernel that will run, against XLA's loop as the program has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from kernels import loop_in, plan_of

import onescan
from onescan import switches
from onescan.runtime import compiler
from onescan.targets import trial
from onescan.targets.cpu import borders, current
from onescan.targets.cpu.target import Cpu
from onescan.tune import choose, measure
from onescan.tune.speed import Speed

XS = jnp.linspace(0.0, 1.0, 31 * 64).reshape(31, 64)


@pytest.fixture
def _every_loop_is_tried(monkeypatch: Any, tmp_path: Any) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choose, "_choices", {})
    monkeypatch.setattr(choose, "WORTH", 0.0)
    monkeypatch.setattr(borders, "KNOWN", choose.Border(sure=1e9, hopeless=0.0))
    onescan.clear_report()
    switches.set_globally(tune=True)
    yield
    switches.set_globally(tune=False)


def differences(xs: Any, scan: Any = onescan.scan) -> Any:
    """A loop whose xs are parts of another array."""
    step = lambda c, x: (0.5 * c + x[1] - x[0], None)
    return scan(step, jnp.zeros(64), (xs[:-1], xs[1:]))[0]


def expected() -> Any:
    return differences(XS, lax.scan)


@pytest.mark.usefixtures("_every_loop_is_tried")
def test_what_is_tried_is_what_runs(monkeypatch: Any) -> None:
    """One kernel is compiled, which reads its xs where they lie."""
    linked: list[list[str]] = []  # what is exported
    link = compiler.link

    def noted(text: str, exports: list[str], *more: Any) -> Any:
        linked.append(exports)
        return link(text, exports, *more)

    monkeypatch.setattr(compiler, "link", noted)
    np.testing.assert_allclose(jax.jit(differences)(XS), expected(), rtol=1e-6)
    (row,) = onescan.report()
    assert row.engine == "native"
    assert row.speed is not None
    assert row.speed.measured
    assert row.notes == ("read 2 xs in place, as parts of other arrays",)
    assert sum("kernel" in exports for exports in linked) == 1


@pytest.mark.usefixtures("_every_loop_is_tried")
def test_a_lost_trial_leaves_the_loop_to_xla(monkeypatch: Any) -> None:
    """Nothing of the kernel stays in the program, and it is lost once."""
    lost = Speed(2e-6, 1e-6, measured=True)
    trials: list[int] = []
    monkeypatch.setattr(Cpu, "tried", lambda *_: trials.append(0) or lost)
    for _ in range(2):
        lowered = jax.jit(lambda xs: differences(xs)).lower(XS)
        assert "custom_call" not in lowered.as_text()
        np.testing.assert_allclose(lowered.compile()(XS), expected(), rtol=1e-6)
    (row,) = onescan.report()
    assert (row.engine, row.count) == ("xla", 2)
    assert row.reason == "XLA is faster, measured on this machine (2 us, XLA 1 us)"
    assert len(trials) == 1


def test_both_are_given_arrays_as_the_program_has_them(monkeypatch: Any) -> None:
    """With time inside the lanes, XLA has to turn them, and a kernel has not."""
    step = lambda c, x: (c * 0.5 + x, c)
    over = jax.vmap(lambda c, xs: lax.scan(step, c, xs))
    loop = loop_in(over, jnp.ones(64), jnp.ones((64, 30)))
    plan = plan_of(loop.replace(added_axes=1))
    assert len(plan.batch_major) == 2
    monkeypatch.setattr(trial, "measured", lambda ours, theirs: (ours, theirs))
    target = current()
    found: Any = trial.tried(target, plan, target.build(plan), Speed(1e-6, 1e-6), None)
    results = []
    for one in found:
        assert [aval.shape for aval in one.types] == [(64,), (64, 30)]
        results.append(jax.jit(one.function)(*measure._made_up_all(one)))
    ours, theirs = results
    assert [y.shape for y in theirs] == [(64,), (64, 30)]
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
    hlo = jax.jit(found[0].function).lower(*found[0].types).compile().as_text()
    assert "transpose(" not in hlo


def test_what_weights_multiply_stays_finite(monkeypatch: Any) -> None:
    """Step after step: some kernels take longer for what is not."""
    step = lambda c, _: (c @ W, None)
    W = jnp.ones((256, 256))
    loop = loop_in(lambda c: lax.scan(step, c, None, length=200)[0], jnp.ones((4, 256)))
    plan = plan_of(loop)
    monkeypatch.setattr(trial, "measured", lambda ours, theirs: (ours, theirs))
    target = current()
    found: Any = trial.tried(target, plan, target.build(plan), Speed(1e-6, 1e-6), None)
    for one in found:
        (last,) = jax.jit(one.function)(*measure._made_up_all(one))
        assert 1e-20 < float(jnp.mean(last)) < 1e20
