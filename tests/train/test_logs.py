"""Where metrics go: files, functions, the bar, the plot."""

from __future__ import annotations

import csv
import io
import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import onescan
from onescan import train
from onescan.train.bar import Bar
from onescan.train.metrics import Layout


def step(state, batch):
    metrics = {
        "loss": state / 3,
        "inner": {"count": jnp.int32(state)},
        "many": jnp.full(2, state),
        "half": (state / 3).astype(jnp.bfloat16),
    }
    return state + 1, metrics


def fit(**options):
    return train.fit(step, 0.0, steps=10, chunk=4, progress=False, **options)


def test_jsonl_and_csv_have_every_step_to_the_last_bit(tmp_path):
    run = fit(log=[tmp_path / "new" / "log.jsonl", str(tmp_path / "log.csv")])
    lines = (tmp_path / "new" / "log.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert (
        list(rows[0])
        == ["step", "half", "inner/count", "loss"]
        == list({"step": 0} | dict.fromkeys(sorted(set(entries[0]) - {"step"}), 0))
    )
    for table in (entries, rows):
        assert [int(row["step"]) for row in table] == list(range(10))
        read = np.float32([float(row["loss"]) for row in table])
        assert read.tobytes() == run.metrics["loss"].tobytes()
    assert run.metrics["many"].shape == (10, 2)
    assert run.metrics["half"].dtype == jnp.bfloat16


def test_functions_are_called_after_every_chunk():
    calls = []
    run = fit(log=lambda *call: calls.append(call))
    assert [count for count, _ in calls] == [4, 8, 10]
    joined = np.concatenate([metrics["loss"] for _, metrics in calls])
    np.testing.assert_array_equal(joined, run.metrics["loss"])


def test_a_new_run_replaces_its_log_and_nothing_else(tmp_path):
    log = tmp_path / "log.csv"
    fit(log=log)
    first = log.read_text()
    fit(log=log)
    assert log.read_text() == first
    log.write_text("name,price\nflour,3\n")
    with pytest.raises(onescan.ScanValueError, match="line 1 is not one of a training"):
        fit(log=log)
    assert log.read_text() == "name,price\nflour,3\n"


@pytest.mark.parametrize(
    ("log", "error", "said"),
    [
        ("log.txt", onescan.ScanValueError, "log='log.txt' ends in neither .jsonl nor"),
        (3, onescan.ScanTypeError, "log takes a path .* but it is 3"),
    ],
)
def test_other_logs(log, error, said):
    with pytest.raises(error, match=said):
        fit(log=log)


def test_names_of_metrics():
    assert Layout.of(1.0).names == ("loss",)
    assert Layout.of((1.0, {"a": 2})).names == ("0", "1/a")


def shown(**options):
    out = io.StringIO()
    console = Console(file=out, width=120, **options)
    with Bar("fitting", 100, 0, console) as bar:
        bar.advance(40, {"loss": 0.123456, "accuracy": 0.5})
        bar.advance(60, {"loss": 0.012345, "accuracy": 0.75})
    return out.getvalue()


def test_the_bar_shows_steps_rate_and_metrics():
    text = shown(force_terminal=True, color_system=None)
    assert "fitting" in text
    assert "100/100" in text
    assert "steps/s" in text
    assert "loss 0.01235  accuracy 0.75" in text


def test_no_bar_where_there_is_no_terminal():
    assert shown(force_terminal=False) == ""


def test_learning_curves_by_one_call(tmp_path):
    run = fit()
    figure = run.plot(tmp_path / "plots" / "curves.png", title="a run")
    titles = [axis.get_title() for axis in figure.axes if axis.get_visible()]
    assert titles == ["half", "inner/count", "loss"]
    assert (tmp_path / "plots" / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_plots_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install onescan\[plot\]"):
        fit().plot()
