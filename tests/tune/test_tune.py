"""Which engine runs a loop: predictions, trials, and what is kept of them."""

from __future__ import annotations

import json
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from kernels import kernel_of, loop_in, plan_of

import onescan
from onescan import switches
from onescan.plan.profile import Profile
from onescan.targets.cpu import borders, current
from onescan.targets.cpu import target as cpu
from onescan.targets.cpu.target import Cpu
from onescan.tune import choose, measure, store
from onescan.tune.choose import Choice
from onescan.tune.costs import AVX512, costs_of
from onescan.tune.predict import by_xla, predicted
from onescan.tune.speed import Speed


def body(c, x):
    return jnp.sin(c) + x, None


def looped(n=256, steps=50):
    loop = loop_in(lambda c, x: lax.scan(body, c, x), jnp.ones(n), jnp.ones(steps))
    return loop, kernel_of(plan_of(loop)).profile


def decide(times, trial=None, loop=None, may_measure=True, key="k"):
    def never():
        raise AssertionError("measured")

    choice = choose.choose(loop or looped()[0], times, may_measure, lambda: key, True)
    return choose.settled(choice, trial or never)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choose, "_choices", {})


def test_more_work_takes_longer():
    small, large = (predicted(*looped(n), 1, AVX512) for n in (256, 4096))
    assert large.native > 8 * small.native > 0
    assert large.xla > 8 * small.xla > 0
    steps = [predicted(*looped(256, n), 1, AVX512).native for n in (50, 500)]
    assert steps[0] == pytest.approx(steps[1], rel=0.2)  # of one step


def test_costs_of_processors():
    names = {
        costs_of(bits, triple).name
        for bits, triple in (
            (512, "x86_64-linux"),
            (256, "x86_64-linux"),
            (128, "x86_64-linux"),
            (128, "aarch64-linux"),
        )
    }
    assert len(names) == 4


def test_what_a_processor_does_at_once_is_counted_once():
    loop, _ = looped()
    vector = "<16 x float>"
    added = {("fadd", vector): 1e6, ("load", "float"): 1e6}
    product = added | {("fmul", vector): 1e6}
    spread = added | {("insertelement", vector): 1e6, ("shufflevector", vector): 1e6}
    alone = {("load", "float"): 1e6, ("fmul", vector): 1e6}
    times = [
        predicted(loop, Profile(runs, {}), 1, AVX512).native
        for runs in (added, product, spread, product | spread, alone)
    ]
    assert times == [times[0]] * 5


def test_xla_computes_what_is_read():
    table = jnp.ones((256, 256))

    def step(read, c, i):
        return c + read(jnp.sin(c * table), i), None

    times = []
    for read in (lambda t, i: t[i], lambda t, i: t.sum(0)):
        looped = lambda c, i, read=read: lax.scan(partial(step, read), c, i)
        loop = loop_in(looped, table[0], jnp.arange(50))
        times.append(by_xla(loop, 1, AVX512))
    assert times[0] < times[1] / 20


def test_sure_predictions_are_not_measured():
    assert decide(Speed(1e-3, 1e-2)).native
    left = decide(Speed(2e-2, 1e-3))
    assert not left.native
    assert left.reason == "XLA is expected to be faster (20 ms, XLA 1 ms)"


def test_a_reason_does_not_contradict_its_numbers():
    border = choose.Border(slower=1.3)
    loop, speed = looped()[0], Speed(10e-6, 11e-6)
    left = choose.choose(loop, speed, False, lambda: "k", False, border)
    assert not left.native
    assert left.reason == (
        "a kernel is not expected to be clearly faster (10 us, XLA 11 us)"
    )


def test_short_loops_are_not_measured():
    assert decide(Speed(1e-6, 1e-6)).native
    assert not decide(Speed(5e-6, 1e-6)).native


def test_what_is_short_by_one_engine_only_is_measured():
    """Or a loop whose kernel is thought to be fast would never be found slow."""
    slow = Speed(3e-4, 1e-4, measured=True)
    assert not decide(Speed(9e-5, 1.7e-4), lambda: slow).native


def test_the_faster_engine_is_chosen():
    close = Speed(1e-3, 1e-3)
    assert not decide(close, lambda: Speed(2e-3, 1e-3), key="slower").native
    assert decide(close, lambda: Speed(1.01e-3, 1e-3), key="close").native
    found = decide(close, lambda: Speed(2e-6, 1e-6, measured=True), key="slower too")
    assert found.reason == ("XLA is faster, measured on this machine (2 us, XLA 1 us)")


def test_a_trial_is_made_once():
    trials = iter([Speed(2e-3, 1e-3)])
    for _ in range(2):
        assert not decide(Speed(1e-3, 1e-3), lambda: next(trials)).native
    choose._choices.clear()  # another process
    assert not decide(Speed(1e-3, 1e-3), lambda: next(trials)).native


def test_times_of_a_busy_machine_are_not_kept():
    trials = iter([Speed(1e-3, 2e-3, quiet=False), Speed(2e-3, 1e-3)])
    for _ in range(2):  # never changed within a process
        assert decide(Speed(1e-3, 1e-3), lambda: next(trials)).native
    choose._choices.clear()  # another process
    assert not decide(Speed(1e-3, 1e-3), lambda: next(trials)).native


@pytest.mark.parametrize(("taken", "rounds"), [(0, 4), (100, 6)])
def test_more_calls_where_others_are_busy(taken, rounds, monkeypatch):
    """Twice as long where turns are taken from us."""
    made = []
    monkeypatch.setattr(measure.time, "perf_counter", lambda: sum(made))
    monkeypatch.setattr(measure, "_turns_taken", lambda: taken * sum(made))
    others = measure.Others()
    calls = [lambda: made.append(0.02), lambda: made.append(0.015)]
    measure._in_turns(calls, (1, 1), others)
    assert len(made) == 2 * rounds
    assert others.disturb == bool(taken)


def test_loops_with_a_while_are_not_tried():
    def waits(c, x):
        return lax.while_loop(lambda v: v.sum() < 3, lambda v: v + 1, c), None

    loop = loop_in(lambda c, x: lax.scan(waits, c, x), jnp.ones(9), jnp.ones(50))
    assert decide(Speed(1e-3, 1e-3), loop=loop).native
    assert decide(Speed(1e-3, 0.8e-3), loop=loop).native
    assert not decide(Speed(1e-3, 0.6e-3), loop=loop).native


def test_files_that_cannot_be_read_count_as_none():
    key = store.key_of("a", 1)
    assert store.read(key) is None
    store.write(key, Speed(1.0, 2.0))
    assert store.read(key) == Speed(1.0, 2.0, measured=True)
    (path,) = store.folder().iterdir()
    assert json.loads(path.read_text()) == {"native": 1.0, "xla": 2.0}
    path.write_text("{")
    assert store.read(key) is None


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    store.write("key", Speed(1.0, 2.0))
    assert store.read("key") is None


def test_both_engines_are_timed(monkeypatch):
    """A real trial of a small loop, by the whole pipeline."""
    monkeypatch.setattr(choose, "WORTH", 0.0)
    monkeypatch.setattr(measure, "_turns_taken", lambda: 0)
    monkeypatch.setattr(borders, "KNOWN", choose.Border(sure=1e9, hopeless=0.0))
    onescan.clear_report()
    switches.set_globally(tune=True)
    try:
        f = jax.jit(lambda c, x: onescan.scan(body, c, x)[0])
        f(jnp.ones(64), jnp.ones(30))
        with onescan.options(tune=False):
            f(jnp.ones(65), jnp.ones(30))
    finally:
        switches.set_globally(tune=False)
    tried, not_tried = onescan.report()
    assert tried.speed.measured
    assert tried.speed.native > 0
    assert tried.speed.xla > 0
    assert len(list(store.folder().iterdir())) == 1
    assert not not_tried.speed.measured
    assert not_tried.speed.native > 0


def test_a_slower_kernel_leaves_the_loop_to_xla(monkeypatch):
    slow = Choice(False, Speed(2e-6, 1e-6, measured=True))
    monkeypatch.setattr(Cpu, "choice", lambda *_: slow)
    onescan.clear_report()
    f = lambda c, x: onescan.scan(body, c, x)[0]
    jax.jit(f)(jnp.ones(64), jnp.ones(30))
    (row,) = onescan.report()
    assert (row.engine, row.reason) == ("xla", slow.reason)
    with onescan.engine("native"):
        jax.jit(lambda c, x: f(c, x))(jnp.ones(64), jnp.ones(30))
    assert onescan.report()[1].engine == "native"


def test_loops_in_those_that_lost_are_tried_less(monkeypatch):
    """Two of them around each other are enough, however deep they are nested."""
    slow, seen = Choice(False, Speed(2e-5, 1e-5, measured=True)), []

    def choice(target, plan, kernel, settings):
        seen.append((settings.trials, settings.in_xla))
        return slow

    monkeypatch.setattr(Cpu, "choice", choice)

    def nested(depth, c):
        if not depth:
            return c * 0.5 + 1
        return onescan.scan(lambda c, _: (nested(depth - 1, c), None), c, None, 3)[0]

    with switches.using(installed=True):
        jax.jit(lambda c: nested(4, c))(jnp.ones(1000))
    assert seen == [(2, False), (1, True), (0, True), (0, True)]


@pytest.mark.parametrize("in_xla", [False, True])
def test_loops_in_those_of_xla_must_be_faster(in_xla, monkeypatch):
    """They are called too often to be slower, and are too short to be measured."""
    monkeypatch.setattr(cpu, "predicted", lambda *_: Speed(2e-6, 1e-6))
    loop, target = looped()[0], current()
    plan = target.plan(loop)
    settings = switches.Settings(in_xla=in_xla)
    assert target.choice(plan, target.build(plan), settings).native != in_xla


@pytest.mark.parametrize(("steps", "rounds"), [((10, 1), 4), ((1, 1), 2)])
def test_calls_are_compared_by_their_steps(steps, rounds, monkeypatch):
    """What is ten times as long for ten times the steps is not clear at once."""
    made = []
    monkeypatch.setattr(measure.time, "perf_counter", lambda: sum(made))
    calls = [lambda: made.append(0.05), lambda: made.append(0.005)]
    ours, theirs = measure._in_turns(calls, steps, measure.Others())
    assert len(made) == 2 * rounds
    assert ours / theirs == pytest.approx(10 / steps[0])


@pytest.mark.parametrize(
    ("ours", "theirs", "rounds"),
    [(0.1, 0.5, 1), (0.1, 0.2, 2), (0.15, 0.2, 3), (0.4, 0.2, 3)],
)
def test_what_lasts_is_called_less_often(ours, theirs, rounds, monkeypatch):
    made = []
    monkeypatch.setattr(measure.time, "perf_counter", lambda: sum(made))
    calls = [lambda: made.append(ours), lambda: made.append(theirs)]
    measure._in_turns(calls, (1, 1), measure.Others())
    assert len(made) == 2 * rounds


def test_a_program_of_xla_that_is_slow_at_first_is_not_given_up_at_once(monkeypatch):
    """The first call of a training step of GRUs takes 0.15 s, others 0.04."""
    times = iter([(0.03, 0.15), (0.03, 0.04), (0.03, 0.025), (0.03, 0.025)])
    monkeypatch.setattr(measure, "_round", lambda calls, steps: list(next(times)))
    clock = iter(range(9))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: 0.2 * next(clock))
    assert measure._in_turns([], (1, 1), measure.Others()) == [0.03, 0.025]


def test_a_kernel_that_is_slow_at_first_is_not_given_up_at_once(monkeypatch):
    """Its results are memory that nobody has touched before."""
    times = iter([(19.0, 2.0), (5.0, 2.0), (5.0, 2.0), (1.0, 2.0), (1.0, 2.0)])
    monkeypatch.setattr(measure, "_round", lambda calls, steps: list(next(times)))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: 0.0)
    assert measure._in_turns([], (1, 1), measure.Others()) == [1.0, 2.0]
    times = iter([(9.0, 2.0), *[(5.0, 2.0)] * measure.LOSING])
    assert measure._in_turns([], (1, 1), measure.Others()) == [5.0, 2.0]
    times = iter([(19.0, 2.0), (19.0, 2.0)])
    assert measure._in_turns([], (1, 1), measure.Others()) == [19.0, 2.0]
