"""The report: rows, counts, bounds, and how it looks."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import fakes
import jax
import jax.numpy as jnp
import pytest
from jax import lax
from rich.console import Console

import onescan
from onescan import switches
from onescan.lowering import hook
from onescan.lowering.outcome import Left
from onescan.reports import rows, table
from onescan.tune.speed import Speed


def step(c, x):
    return c + x, (c, c > x)


def loop(length=8, width=4):
    return lax.scan(step, jnp.zeros(width), jnp.ones((length, width)))


@pytest.fixture(autouse=True)
def installed():
    onescan.clear_report()
    jax.clear_caches()
    with switches.using(installed=True):
        yield
    onescan.clear_report()


@pytest.fixture
def engine(monkeypatch):
    fakes.use_engine(monkeypatch)


def only_row():
    (row,) = onescan.report().rows
    return row


def in_terminal(report, width):
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


def test_a_row_says_what_the_loop_is(engine):
    jax.jit(loop)()
    row = only_row()
    assert row.name == "step"
    assert row.source.endswith(f"test_report.py:{step.__code__.co_firstlineno}")
    assert row.length == 8
    assert (row.carry_bytes, row.xs_bytes, row.ys_bytes) == (16, 128, 128 + 32)
    assert (row.engine, row.reason, row.passes) == ("native", None, ("disguise",))
    assert row.count == 1
    assert row.seconds > 0


def test_a_loop_left_to_xla_says_why(monkeypatch):
    fakes.use_leaving_engine(monkeypatch, "`cholesky` has no native rule")
    jax.jit(loop)()
    row = only_row()
    assert (row.engine, row.reason) == ("xla", "`cholesky` has no native rule")


def test_keys_count_as_the_words_they_are(engine):
    def split(key, _):
        key, once = jax.random.split(key)
        return key, once

    lax.scan(split, jax.random.key(0), None, length=5)
    assert (only_row().carry_bytes, only_row().ys_bytes) == (8, 40)


def test_identical_loops_are_counted_in_one_row(engine):
    for _ in range(3):
        jax.jit(lambda: loop())()
    first = only_row()
    assert first.count == 3
    jax.jit(lambda: loop(length=9))()
    assert [row.length for row in onescan.report().rows] == [8, 9]


def test_a_report_is_a_snapshot(engine):
    before = onescan.report()
    loop()
    assert before.rows == ()
    assert len(onescan.report().rows) == 1
    with pytest.raises(AttributeError, match="cannot assign"):
        before.rows = ()  # type: ignore[misc]


def test_gradients_are_loops_too(engine):
    def final(a):
        return lax.scan(lambda c, x: (jnp.sin(c * x), None), a, jnp.ones(3))[0]

    jax.jit(jax.grad(final))(1.0)
    assert len(onescan.report().rows) == 2


def test_stock_loops_are_not_listed(engine):
    with onescan.engine("xla"):
        loop()
    with switches.using(installed=False):
        jax.jit(lambda: loop())()
    assert onescan.report().rows == ()


def test_memory_is_bounded(engine, monkeypatch):
    monkeypatch.setattr(rows, "CAPACITY", 3)
    for length in range(1, 6):
        loop(length=length)
    report = onescan.report()
    assert [row.length for row in report.rows] == [3, 4, 5]
    assert report.forgotten == 2
    assert "2 older loops are no longer listed." in str(report)
    assert "2 older loops are no longer listed." in report._repr_html_()
    onescan.clear_report()
    assert onescan.report() == rows.Report(())


def test_threads_lose_nothing(engine):
    def lower():
        with switches.using(installed=True):
            for _ in range(5):
                jax.jit(lambda: loop()).lower()

    threads = [threading.Thread(target=lower) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert only_row().count == 20


def test_to_dict_is_plain_data(engine):
    jax.jit(loop)()
    data = onescan.report().to_dict()
    assert json.loads(json.dumps(data)) == data
    (entry,) = data["loops"]
    assert entry["name"] == "step"
    assert entry["engine"] == "native"
    assert entry["passes"] == ["disguise"]
    assert data["forgotten"] == 0


@pytest.mark.parametrize("width", [20, 40, 67, 80, 120, 200])
def test_every_width_of_terminal_shows_everything(monkeypatch, width):
    fakes.use_leaving_engine(monkeypatch, "no rule for [bold]sort[/bold]")
    jax.jit(loop)()
    text = in_terminal(onescan.report(), width)
    assert all(len(line) <= width for line in text.splitlines())
    squeezed = "".join(text.split())
    for part in ("step", "xla", "carry16B", "xs128B", "ys160B", "test_report.py"):
        assert part in squeezed
    assert width < 80 or "[bold]" in squeezed


def test_text_of_a_report(engine, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    jax.jit(loop)()
    monkeypatch.chdir(Path(__file__).parent)  # paths are shown from here
    title, _, facts, details = str(onescan.report()).splitlines()
    assert title.split() == ["loop", "steps", "engine", "a", "step", "takes", "compile"]
    assert facts.split()[0] == "step"
    assert facts.split()[2:4] == ["8", "native"]
    held = "carry 16 B, xs 128 B, ys 160 B"
    assert details == f"    {held}. the whole loop is one kernel."


def test_a_reason_says_what_to_do(monkeypatch):
    fakes.use_leaving_engine(monkeypatch, "the body has side effects (print)")
    jax.jit(loop)()
    assert "use it after the loop" in only_row().advice
    for width in (40, 80):
        text = " ".join(in_terminal(onescan.report(), width).split())
        assert "side effects (print). Return what you print" in text
    assert "Return what you print" in onescan.report()._repr_html_()


def test_speed_is_shown_where_it_is_known(monkeypatch):
    measured = Speed(native=2e-6, xla=9e-6, measured=True)
    leave = fakes.use_leaving_engine
    leave(monkeypatch, "of the test")
    jax.jit(loop)()
    row = rows.replace(only_row(), speed=measured)
    report = rows.Report((row,))
    text = in_terminal(report, 80)
    assert "2 us, XLA 9 us" in text
    assert "4.5x, measured" in text
    assert "2 us, XLA 9 us" in in_terminal(report, 60)
    assert "4.5x, measured" in report._repr_html_()
    assert report.to_dict()["loops"][0]["speed"]["native"] == 2e-6
    assert Speed(xla=3e-9).ratio is None
    assert str(Speed(xla=3.21e-9)) == "XLA 3.21 ns"


def test_speed_comes_with_the_outcome(monkeypatch):
    known = Left("of the test", speed=Speed(xla=1e-3))
    monkeypatch.setattr(hook, "compile_loop", lambda *_: known)
    for _ in range(2):
        jax.jit(lambda: loop())()
    assert only_row().speed == Speed(xla=1e-3)
    assert only_row().count == 2


def test_loops_of_jax_itself_are_one_line(engine):
    jax.jit(loop)()
    row = only_row()
    inside = "/lib/site-packages/jax/_src/"
    rounds = rows.replace(row, source=f"{inside}random/threefry2x32.py:123")
    mapped = rows.replace(
        row, name="<lambda>", source=f"{inside}lax/control_flow/loops.py:9"
    )
    other = rows.replace(rounds, length=3, engine="xla")
    report = rows.Report((rounds, row, other, mapped))
    text = in_terminal(report, 80)
    assert "2 loops of JAX itself (threefry2x32): 1 native" in text
    assert "jax.lax.map  jax/.../loops.py:9" in text
    assert text.count("threefry") == 1
    assert "2 loops of JAX itself" in report._repr_html_()
    assert len(report.to_dict()["loops"]) == 4


def test_nothing_lowered_yet_says_what_to_do():
    assert "onescan.install()" in str(onescan.report())
    assert "onescan.install()" in onescan.report()._repr_html_()


def test_html_escapes_text(monkeypatch):
    fakes.use_leaving_engine(monkeypatch, "<script> & more")
    jax.jit(loop)()
    page = onescan.report()._repr_html_()
    assert "&lt;script&gt; &amp; more" in page
    assert "<script>" not in page
    assert "step<br>" in page


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_999, "1.0 MB"),
        (3_200_000_000, "3.2 GB"),
        (5 * 10**15, "5,000.0 TB"),
        ("4*n", "4*n B"),
    ],
)
def test_sizes_are_for_people(size, text):
    assert table.size(size) == text


def test_source_lines_are_short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert table.short(str(tmp_path / "models" / "rnn.py:7")) == "models/rnn.py:7"
    assert table.short("/opt/site-packages/flax/nn/rnn.py:7") == "flax/nn/rnn.py:7"
    assert table.short("/elsewhere/code/models/rnn.py:7") == "models/rnn.py:7"
    assert table.short("unknown") == "unknown"


def test_symbolic_shapes_are_shown_as_they_are(engine):
    (n,) = jax.export.symbolic_shape("n")
    xs = jax.ShapeDtypeStruct((n,), jnp.float32)
    jax.export.export(jax.jit(lambda xs: lax.scan(step, 0.0, xs)))(xs)
    row = only_row()
    assert (row.length, row.carry_bytes, row.xs_bytes) == ("n", 4, "4*n")
    assert "4*n B" in str(onescan.report())
