"""`--compare`: the user's program under both engines, and each loop by itself."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import pytest

import onescan
from onescan.command import alone, cli, compare
from onescan.reports import rows
from onescan.reports.advice import ADVICE, advice

PROGRAM = """
import sys
import jax, jax.numpy as jnp
def body(total, x):
    return 0.5 * total + x, total
print("result", jax.lax.scan(body, 0.0, jnp.arange(4.0))[0])
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_a_program_runs_under_both_engines(program, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert compare.compare([program, "0"], rounds=1) == 0
    out, err = capfd.readouterr()
    assert out.count("result") == 1
    for text in ("stock JAX", "lowering and compiling", "body", "with made-up numbers"):
        assert text in err
    assert all(len(line) <= 80 for line in err.splitlines())


def test_a_program_that_fails_ends_the_comparison(program, capfd):
    assert cli.main(["--compare", program, "3"]) == 3
    assert "the program ended with 3 under stock JAX." in capfd.readouterr().err


def test_the_times_of_a_run(program, tmp_path, monkeypatch):
    out = tmp_path / "times.json"
    watch = compare.Watch(out, loops=False)
    watch._hear(compare.COMPILING[0], 0.25)
    watch._hear("/jax/core/compile/jaxpr_trace_duration", 7.0)
    watch.write()
    found = json.loads(out.read_text())
    assert (found["compiling"], found["loops"]) == (0.25, [])
    assert found["total"] > 0


def test_a_loop_by_itself():
    onescan.clear_report()

    def step(state, x):
        key, c, flag, n = state
        key, now = jax.random.split(key)
        c = jnp.where(flag, c, 0.5 * c) + jax.random.normal(now, (3,)) + x
        return (key, c, ~flag, n + 1), c

    init = jax.random.key(0), jnp.ones(3, jnp.float16), jnp.bool_(True), jnp.int32(0)
    init = (init[0], jnp.ones(3), *init[2:])
    onescan.scan(step, init, jnp.ones((5, 3)))
    (found,) = compare.times_of_loops()
    assert "step" in found["loop"]
    assert found["native"] > 0
    assert found["xla"] > 0


def test_what_cannot_be_made_up_is_left_out():
    onescan.clear_report()

    def step(c, x):
        jax.debug.print("{}", c)
        return c, None

    with onescan.engine("auto"):
        onescan.scan(step, 0.0, jnp.ones(2))
    (row,) = onescan.report().rows
    loop = rows.loop_of(row)
    assert loop is not None
    assert alone.speed_of(loop) is None
    assert "use it after the loop" in (row.advice or "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda c, x: (jax.scipy.linalg.schur(c)[0], None), "before or after the loop"),
    ],
)
def test_advice_for_what_the_engine_says(body, words):
    onescan.clear_report()
    jax.jit(lambda c: onescan.scan(body, c, None, length=3)[0]).lower(jnp.eye(3))
    rows = [row for row in onescan.report().rows if row.engine == "xla"]
    assert rows
    assert all(words in (row.advice or "") for row in rows)


def test_every_advice_is_a_sentence():
    assert all(what.endswith(".") and what[0].isupper() for _, what in ADVICE)
    assert advice("something else") is None


def test_engine_on_the_command_line(program, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["--engine", "gpu", program])
    assert "invalid choice: 'gpu'" in capsys.readouterr().err
