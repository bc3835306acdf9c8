"""`onescan explain` on the command line."""

import os
import subprocess
import sys

import pytest

from onescan.command import cli

PROGRAM = """
import sys
import jax, jax.numpy as jnp

def decay(level, rain):
    level = 0.9 * level + rain
    return level, level

def start():
    return jnp.zeros(4)

if __name__ == "__main__":
    xs = jnp.ones((10, 4))
    print(sys.argv[1:], float(jax.lax.scan(decay, start(), xs)[0].sum()))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "tank.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "tank", raising=False)
    return tmp_path


@pytest.mark.parametrize("target", ["tank:decay", "tank.py:decay"])
def test_a_function_with_values(folder, capsys, target):
    command = ["explain", target, "--init", "start()", "--xs", "jnp.ones((3, 4))"]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert "decay (tank.py:5), 3 steps" in out
    assert "[2.71, 2.71, 2.71, 2.71]," in out
    assert "float32[3,4] 1.0 to 2.71, mean 1.87" in out
    assert "level = 0.9 * level + rain" in out


def test_a_function_with_types_alone(folder, capsys):
    command = ["explain", "tank:decay", "--init", "float32[1000]"]
    assert cli.main([*command, "--xs", "float32[1000000,1000]", "--reverse"]) == 0
    out = capsys.readouterr().out
    assert "decay (tank.py:5), 1.0 million steps, last to first" in out
    assert "float32[1000000,1000]" in out
    number = ["explain", "tank:decay", "--init", "float32", "--length", "5"]
    assert cli.main([*number, "--xs", "float32[5]"]) == 0
    assert "carry           float32[]" in capsys.readouterr().out


def test_save_and_stages(folder, capsys):
    command = ["tank:decay", "--init", "0.0", "--xs", "[1.0, 2.0]"]
    assert cli.main(["explain", "--save", "loop.html", *command]) == 0
    assert capsys.readouterr().out == "decay (tank.py:5), 2 steps: loop.html\n"
    assert (folder / "loop.html").read_text().startswith("<!doctype html>")
    assert cli.main(["explain", *command, "--save", "other.html"]) == 0
    assert (folder / "other.html").exists()
    assert cli.main(["explain", *command, "--stages", "cpu"]) == 0
    assert "assembly" in capsys.readouterr().out


def test_every_loop_of_a_program(folder):
    command = [sys.executable, "-m", "onescan", "explain", "tank.py", "--save", "x"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['--save', 'x'] ")
    assert "loop 1 of 1" in done.stdout
    assert "decay (tank.py:5), 10 steps" in done.stdout
    assert "4 independent lanes" in done.stdout
    command[4:] = ["--save", "loops.html", "tank.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.endswith("decay (tank.py:5), 10 steps: loops.html\n")
    assert "level = " in (folder / "loops.html").read_text()


COMPILED = """
from typing import NamedTuple
import jax, jax.numpy as jnp

class State(NamedTuple):
    w: jax.Array
    key: jax.Array

@jax.jit
def train(state, xs):
    def step(state, batch):
        x, y = batch
        key, _ = jax.random.split(state.key)
        grad = jax.grad(lambda w: (w * x - y) ** 2)(state.w)
        return State(state.w - 0.5 * grad, key), grad
    return jax.lax.scan(step, state, xs)

state = State(jnp.float32(0), jax.random.key(3))
for x in (1.0, 7.0):
    state, _ = train(state, (jnp.full(20, x), jnp.full(20, 2.0)))
large = jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c + x, None), xs[0], xs))
large(jnp.ones((5, 2_000_000)))
"""


def test_the_values_of_a_compiled_programs_loops(folder):
    (folder / "compiled.py").write_text(COMPILED)
    command = [sys.executable, "-m", "onescan", "explain", "compiled.py"]
    wide = os.environ | {"COLUMNS": "160"}
    done = subprocess.run(command, capture_output=True, text=True, env=wide)
    assert done.returncode == 0, done.stderr
    walk, rest = done.stdout.split("carry out is the next step's", 1)
    assert "loop 1 of 2" in walk
    rows = [line.split() for line in walk.splitlines()]
    first = next(row for row in rows if row[:1] == ["0"])
    carry, x, carry_out, y = (
        "state.w 0.0",
        "(batch[0]=1.0, batch[1]=2.0)",
        "2.0",
        "-4.0",
    )
    assert " ".join(first[1:]) == f"{carry} {x} state.w {carry_out} {y}"
    assert "state.key key<fry>([0, 3])" in walk
    assert any(row[:1] == ["19"] for row in rows)
    assert "These are the values of the loop's first call." in rest
    assert "The values of this loop were not kept: its arguments are 48 MB" in rest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.py"], "there is no file nothing.py, and it is no module:function"),
        (["tank:decay"], "say what the first carry is: --init VALUE"),
        (["missing:f", "--init", "0"], "missing cannot be imported: No module named"),
        (["gone.py:f", "--init", "0"], "gone.py cannot be imported: there is no file"),
        (["tank:rot", "--init", "0"], "the function is 'rot', which fails with NameE"),
        (["tank:jnp", "--init", "0"], "jnp of tank is no function"),
        (["tank:decay", "--init", "1 +"], "--init is '1 +', which fails with SyntaxE"),
        (["tank:decay", "--init", "0", "--what"], "unknown arguments: --what"),
    ],
)
def test_wrong_arguments(folder, capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["explain", *arguments])
    assert message in capsys.readouterr().err


def test_a_loop_that_scan_refuses(folder, capsys):
    command = ["explain", "tank:decay", "--init", "jnp.int32(0)", "--xs", "[1.0, 2.0]"]
    assert cli.main(command) == 1
    error = capsys.readouterr().err
    assert error.startswith("onescan.scan: decay (")
    assert "comes out as float32[]" in error
