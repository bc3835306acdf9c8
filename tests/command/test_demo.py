"""`onescan demo`: it measures, compares, and says what it found."""

import sys
from functools import partial
from io import StringIO
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import onescan
from onescan.api import reference
from onescan.command import cli
from onescan.demo import show
from onescan.demo.loops import Case, cases
from onescan.demo.measure import (
    TOLERANCE,
    Result,
    difference,
    measure,
    what_became,
)
from onescan.reports.rows import Report, Row

NAMES = [case.title for case in cases()]


def shown(part):
    console = Console(file=StringIO(), width=120)
    console.print(part)
    return console.file.getvalue()


def result(**changes):
    fields = {"title": "a loop", "steps": 10, "stock": 2e-3, "ours": 1e-5}
    fields |= {"engine": "native", "why": "", "difference": 1.0}
    return Result(**fields | changes)


@pytest.mark.parametrize("case", cases(), ids=NAMES)
def test_loops_mean_what_the_plain_loop_means(case):
    args = case.make(5)
    plain = case.run(reference.scan, *args)
    looped = jax.jit(partial(case.run, onescan.scan))(*args)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        plain,
        looped,
    )


@pytest.mark.parametrize("case", cases(), ids=NAMES)
def test_rounding_does_not_grow(case):
    """Inputs one rounding apart give results that still count as the same."""
    args = case.make(case.steps)
    run = jax.jit(partial(case.run, jax.lax.scan))

    def nudge(leaf):
        if np.issubdtype(leaf.dtype, np.floating):
            return np.asarray(leaf) * np.float32(1 + 2**-23)
        return leaf

    changed = difference(run(*args), run(*jax.tree.map(nudge, args)))
    assert changed < TOLERANCE


def test_whole_demo(tmp_path, capsys):
    out = tmp_path / "plot.png"
    assert cli.main(["demo", "--quick", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in NAMES)
    assert "agree with stock JAX" in printed
    assert out.read_bytes().startswith(b"\x89PNG")


def test_engine_and_reason_come_from_the_report():
    case = Case("sum", 4, lambda scan, xs: scan(_add, 0.0, xs)[0], _ones)
    ticks = []
    found = measure(case, 4, turns=2, tick=lambda: ticks.append(1))
    (row,) = onescan.report().rows
    assert found.engine == {"native": "native", "xla": "XLA"}[row.engine]
    assert found.why.startswith(row.reason or "one kernel")
    assert found.difference == 0
    assert len(ticks) == 3


def _add(c, x):
    return c + x, None


def _ones(steps):
    return (np.ones(steps, np.float32),)


def test_several_loops_of_a_program():
    row = Row(
        "f.py:1", "f", 3, 4, 4, 4, engine="native", reason=None, passes=("hoist",)
    )
    left = Row("f.py:2", "g", 3, 4, 4, 4, engine="xla", reason="too big", passes=())
    became = what_became(Report((row, left, left)))
    assert became == ("native 1/3", "one kernel; too big (hoist)")


@pytest.fixture
def _one_loop(monkeypatch):
    """The demo with its first loop alone."""
    monkeypatch.setattr("onescan.demo.cases", lambda: cases()[:1])


@pytest.mark.usefixtures("_one_loop")
def test_a_wrong_result_is_told(monkeypatch, tmp_path, capsys):
    right = onescan.scan

    def wrong(f, init, xs, **options):
        carry, ys = right(f, init, xs, **options)
        return jax.tree.map(lambda leaf: leaf * 1.01, (carry, ys))

    monkeypatch.setattr(onescan, "scan", wrong)
    out = tmp_path / "plot.png"
    assert cli.main(["demo", "--quick", "--out", str(out)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert f"Results differ: {NAMES[0]}" in printed


def test_difference_counts_roundings_of_the_largest():
    a = {"x": jnp.array([100.0, 1.0])}
    assert difference(a, a) == 0
    assert difference(a, {"x": a["x"] + jnp.array([0, 100 * 2.0**-23])}) == 1
    assert not result(difference=difference(a, {"x": a["x"] * jnp.nan})).agrees
    zero = jnp.zeros(3)
    assert difference(zero, zero) == 0
    assert not result(difference=difference(zero, zero + 1)).agrees


def test_table_and_summary():
    rows = [result(), result(title="other", engine="XLA", why="too big", ours=2e-3)]
    text = shown(show.table(rows))
    assert "200x" in text
    assert "1.00x" in text
    assert "too big" in text
    assert "10 µs" in text
    assert "within 1 rounding" in shown(show.summary(rows))
    assert "bit for bit" in shown(show.summary([result(difference=0.0)]))
    assert "Results differ: other" in shown(
        show.summary([result(), result(title="other", difference=1e9)])
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 µs"), (7e-9, "7 ns")],
)
def test_times(value, text):
    assert show.seconds(value) == text


@pytest.mark.usefixtures("_one_loop")
def test_without_matplotlib(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "plot.png"
    assert cli.main(["demo", "--quick", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "matplotlib is missing (pip install onescan[plot])" in printed
    assert not Path(out).exists()
