"""Progress bars: one for a run, wherever the loop runs, and Ctrl-C."""

from __future__ import annotations

import sys
import types

import jax
import jax.numpy as jnp
import pytest
from processes import python

import onescan
from onescan.long import bars, loop, show


def grow(carry, x):
    return carry * 1.01 + x, carry


class Log:
    """A bar as tqdm has them, which notes what it is told."""

    def __init__(self, total=None):
        self.total, self.updates, self.postfix, self.closed = total, [], {}, False

    def update(self, n):
        self.updates.append(n)

    def set_postfix(self, values):
        self.postfix = values

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def always_drawn(monkeypatch):
    monkeypatch.setattr(loop, "chunk_length", lambda *_: 10)
    monkeypatch.setattr(bars, "REFRESH", 0.0)
    monkeypatch.setattr(bars, "CALL", 0.0)
    yield
    jax.effects_barrier()
    assert not bars._runs


def test_a_bar_is_told_of_every_chunk_and_every_run():
    log = Log()
    run = jax.jit(lambda c: onescan.scan(grow, c, jnp.arange(35.0), progress=log))
    run(1.0)
    jax.effects_barrier()
    assert sum(log.updates) == 35
    assert len(log.updates) > 2
    assert not log.closed  # it is the user's
    run(1.0)
    jax.effects_barrier()
    assert sum(log.updates) == 70


def test_metrics_are_those_of_the_last_step():
    log = Log()
    metrics = lambda carry, y: {"carry": carry, "y": y}
    carry, ys = onescan.scan(
        grow, 1.0, jnp.arange(20.0), progress=log, metrics=metrics, reverse=True
    )
    jax.effects_barrier()
    assert log.postfix == pytest.approx({"carry": float(carry), "y": float(ys[0])})


def test_a_class_makes_a_bar_for_every_run():
    made = []

    class Bar(Log):
        def __init__(self, total):
            super().__init__(total)
            made.append(self)

    run = jax.jit(lambda c: onescan.scan(grow, c, jnp.ones(20), progress=Bar)[0])
    run(1.0)
    run(2.0).block_until_ready()
    jax.effects_barrier()
    assert [(bar.total, sum(bar.updates), bar.closed) for bar in made] == [
        (20, 20, True)
    ] * 2


def test_one_bar_for_a_batch_a_gradient_and_a_loop_that_runs_again():
    log = Log()

    def run(c):
        options = {"progress": log, "metrics": lambda c, y: {"c": c}}
        return onescan.scan(grow, c, jnp.arange(30.0), checkpoint=2, **options)[0]

    values = jnp.arange(3.0)
    slopes = jax.jit(jax.vmap(jax.grad(run)))(values)
    jax.effects_barrier()
    assert slopes == pytest.approx([1.01**30] * 3, rel=1e-4)
    assert sum(log.updates) == 30
    assert log.postfix["c"] == pytest.approx(float(jax.vmap(run)(values).mean()))
    jax.effects_barrier()


def test_nested_loops_have_bars_of_their_own():
    outer, inner = Log(), Log()

    def step(c, x):
        return onescan.scan(grow, c, None, 10, progress=inner)[0] * 0.5, None

    def grow(c, _):
        return c * 1.01, None

    onescan.scan(step, 1.0, None, 4, progress=outer)
    jax.effects_barrier()
    assert sum(outer.updates) == 4
    assert sum(inner.updates) == 40


def test_a_run_that_failed_is_closed_by_the_next():
    made = []

    class Bar(Log):
        def __init__(self, total):
            super().__init__(total)
            made.append(self)

    @jax.jit
    def run(c):
        xs = jnp.arange(30.0)
        return onescan.scan(grow, c, xs, progress=Bar, until=stop)[0]

    def stop(c):
        return jax.pure_callback(fail, jax.ShapeDtypeStruct((), bool), c)

    def fail(c):
        if c > 200:
            raise ValueError("broken")
        return c > 1e9

    with pytest.raises(jax.errors.JaxRuntimeError, match="broken"):
        run(190.0).block_until_ready()
    assert len(bars._runs) == 1
    run(-1e6).block_until_ready()
    jax.effects_barrier()
    assert [bar.closed for bar in made] == [True, True]


def test_terminal(capfd):
    onescan.scan(
        lambda c, _: (c * 1.01, c),
        1.0,
        None,
        40,
        progress="growing",
        metrics=lambda c, y: {"size": c * 2},
    )
    jax.effects_barrier()
    told = capfd.readouterr().err
    assert told.startswith("growing")
    assert "40/40" in told
    assert "steps/s" in told
    assert f"size {2 * 1.01**40:.4g}" in told


def test_facts():
    text = show.facts(1_200_000, 5_000_000, 0.6, {"loss": 0.31234})
    assert text == "1.2M/5M · 2M steps/s · 1.9 s left · loss 0.3123"
    assert show.facts(0, 50, 0.0, {}).endswith("starting")
    assert show.facts(50, 50, 75.0, {}) == "50/50 · 0.667 steps/s · in 1:15 min"
    assert show.duration(7800) == "2:10 h"


def test_notebook(monkeypatch):
    shown = []

    class Place:
        def update(self, line):
            shown.append(line)

    def display(line, display_id):
        shown.append(line)
        return Place()

    page = types.ModuleType("IPython.display")
    page.HTML, page.display = str, display
    shell = types.ModuleType("IPython")
    shell.get_ipython = lambda: types.SimpleNamespace(kernel=1)
    shell.display = page
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", page)
    onescan.scan(lambda c, _: (c * 1.01, c), 1.0, None, 40, progress="<growing>")
    jax.effects_barrier()
    assert shown[0].startswith('<div>&lt;growing&gt; <progress value="10" max="40">')
    assert '<progress value="40" max="40"></progress> 40/40' in shown[-1]


INTERRUPTED = """
import os, signal, sys, threading, time
import jax, onescan

step = lambda c, x: (3.7 * c * (1 - c), None)
long = jax.jit(lambda c: onescan.scan(step, c, None, 2 * 10**9, progress=True)[0])
compiled = long.lower(0.3).compile()
press = lambda: os.kill(os.getpid(), signal.SIGINT)
try:
    threading.Timer(1.0, press).start()
    compiled(0.3).block_until_ready()
except KeyboardInterrupt:
    print("interrupted")
try:  # and Ctrl-C is what it was
    signal.raise_signal(signal.SIGINT)
    time.sleep(1)
except KeyboardInterrupt:
    print("and again")
"""


def test_ctrl_c_ends_a_long_loop():
    done = python(INTERRUPTED)
    assert "interrupted" in done.stdout, done.stderr
    assert "and again" in done.stdout, done.stderr
