"""The benchmarks of programs and of random loops: that they run and can fail."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import onescan

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))

import costs  # noqa: E402
import programs  # noqa: E402
import random_loops  # noqa: E402
from differences import difference  # noqa: E402
from programs.program import Program  # noqa: E402
from random_program import random_loop  # noqa: E402

from onescan.tune.costs import Costs  # noqa: E402


@pytest.fixture(autouse=True)
def clean():
    yield
    onescan.uninstall()
    onescan.clear_report()


def test_names_are_unique():
    names = [program.name for program in programs.PROGRAMS]
    assert len(set(names)) == len(names)


def test_every_cost_is_measured_or_known():
    kept = {field.name for field in dataclasses.fields(Costs)}
    assert {*costs.MEASURED, *costs.KEPT} == kept
    assert 0 < costs.load() < costs.division()


def test_costs_are_written_into_the_record(tmp_path, monkeypatch):
    copy = tmp_path / "costs.py"
    copy.write_text(Path(costs.records.__file__).read_text())
    monkeypatch.setattr(costs.records, "__file__", str(copy))
    costs._write(costs.costs_here(), {"division": 7.25, "waiting": 1.5})
    found: dict[str, Any] = {"__name__": "copied"}
    monkeypatch.setitem(sys.modules, "copied", costs.records)
    exec(copy.read_text(), found)
    (new,) = (v for v in found.values() if getattr(v, "division", 0) == 7.2)
    assert (new.waiting, new.load) == (1.5, costs.costs_here().load)


def test_a_missing_library_is_named():
    program = Program("none", lambda: None, needs=("jax", "no_such_library"))  # type: ignore[arg-type,return-value]
    assert program.missing == ["no_such_library"]


def test_differences():
    a = jnp.array([1.0, 2.0, 3.0])
    assert difference(a, a) == 0
    assert difference(a.at[0].set(1.1), a) > 0.01
    assert difference(a.at[0].set(5.0), a, agree=0.5) == 0
    assert difference(a.at[0].set(jnp.nan), a.at[0].set(jnp.nan)) == float("inf")
    assert difference(a[:2], a) == float("inf")
    assert difference(a * 1j, a * 2j) > 0.4


@pytest.mark.parametrize("seed", range(100, 106))
def test_a_random_loop_is_the_same_whenever_it_is_traced(seed):
    first, again = random_loop(seed), random_loop(seed)
    assert str(first) == str(again)
    texts = [str(jax.make_jaxpr(loop.fn)(*loop.args)) for loop in (first, again)]
    assert texts[0] == texts[1]


def test_parts_can_be_left_out():
    whole = random_loop(101)
    assert random_loop(101, frozenset()).parts == ()
    assert random_loop(101, frozenset({1})).parts == whole.parts[1:2]


def test_a_loop_is_timed_and_shown(tmp_path, capsys):
    def run(c):
        return jax.lax.scan(lambda c, _: (0.5 * c, c), c, None, length=4)

    found = random_loops.timed(run, (jnp.ones(3),), rounds=1)
    assert found["differs"] == 0
    assert found["ratio"] > 0
    assert found["loops"] == ["native: "]
    out = tmp_path / "loops.jsonl"
    random_loops._append(out, {"seed": 1, "loop": "of the test", **found, "ratio": 0.4})
    random_loops._append(out, {"seed": 2, "trouble": "took too long"})
    options = random_loops._parser().parse_args(["show", str(out)])
    assert options.command(options) == 0
    text = capsys.readouterr().out
    for part in ("seed 2: took too long", "below 0.5x 100.0%", "slow seed 1: 0.40x"):
        assert part in text
