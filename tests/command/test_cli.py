"""The command line: an unmodified program sees what plain `python` would show it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import onescan
from onescan.command import cli

PYTHON = [sys.executable]
MODULE = [sys.executable, "-m", "onescan"]
CONSOLE = [str(Path(sys.executable).with_name("onescan"))]
installed = pytest.mark.skipif(
    not Path(*CONSOLE).exists(), reason="the package is on the path, not installed"
)

SEES = """
import json, sys
import beside
mine = sys.modules["__main__"].beside is beside
print(json.dumps([__name__, __file__, sys.argv, sys.path[0], mine]))
"""
LOOPS = """
import sys
import jax, jax.numpy as jnp
def body(total, x):
    return total + x, None
print(float(jax.lax.scan(body, 0.0, jnp.arange(4.0))[0]))
if sys.argv[1] == "raise":
    raise RuntimeError("from the program")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    for where in (tmp_path, tmp_path / "inner"):
        (where / "sees.py").write_text(SEES)
        (where / "beside.py").write_text("")
    (tmp_path / "loops.py").write_text(LOOPS)
    (tmp_path / "wrong.py").write_text("x = (\n")
    return tmp_path


def run(folder, *command):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("launcher", "program"),
    [
        (MODULE, ["inner/sees.py", "a", "--report", "-m"]),
        pytest.param(CONSOLE, ["-m", "inner.sees", "--help", "b"], marks=installed),
    ],
    ids=["script", "module"],
)
def test_program_sees_what_python_shows(folder, launcher, program):
    (folder / "inner" / "__init__.py").write_text("")
    alone, ours = run(folder, *PYTHON, *program), run(folder, *launcher, *program)
    assert alone.returncode == 0, alone.stderr
    assert ours.returncode == 0, ours.stderr
    assert json.loads(ours.stdout) == json.loads(alone.stdout)
    assert ours.stderr == ""


def test_report_at_exit(folder):
    done = run(folder, *MODULE, "--report", "loops.py", "7")
    assert done.returncode == 7
    assert done.stdout == "6.0\n"
    assert "body" in done.stderr
    assert "loops.py:4" in done.stderr


def test_exception_passes_through(folder):
    alone = run(folder, *PYTHON, "loops.py", "raise")
    ours = run(folder, *MODULE, "--report", "loops.py", "raise")
    assert ours.returncode == alone.returncode == 1
    assert ours.stdout == alone.stdout == "6.0\n"
    trace, report = ours.stderr[: len(alone.stderr)], ours.stderr[len(alone.stderr) :]
    assert trace == alone.stderr
    assert "body" in report


def test_syntax_error_passes_through(folder):
    alone, ours = run(folder, *PYTHON, "wrong.py"), run(folder, *MODULE, "wrong.py")
    assert ours.returncode == alone.returncode == 1
    assert ours.stderr == alone.stderr


def test_strict_fails_on_a_loop_left_to_xla(folder):
    (folder / "left.py").write_text(
        "import jax\n"
        "def body(c, _):\n"
        "    jax.debug.callback(print, c)\n"
        "    return c, None\n"
        "jax.lax.scan(body, 1.0, length=2)\n"
    )
    done = run(folder, *MODULE, "--strict", "left.py")
    assert done.returncode == 1
    assert "EngineError: body (" in done.stderr
    assert "left.py:2) was left to XLA" in done.stderr


def test_check_runs(folder):
    done = run(folder, *MODULE, "--check", "loops.py", "0")
    assert (done.returncode, done.stdout) == (0, "6.0\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to run: demo, explain, script.py or -m module"),
        (["-m"], "say what to run: demo, explain, script.py or -m module"),
        (["--report"], "say what to run: demo, explain, script.py or -m module"),
        (["--fast", "script.py"], "unrecognized arguments: --fast"),
        (["nowhere.py"], "there is no file nowhere.py"),
        (["--strict", "demo"], "--strict goes with a program, not with demo"),
        (["demo", "--slow"], "unrecognized arguments: --slow"),
    ],
)
def test_wrong_usage(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert message in capsys.readouterr().err
    assert not onescan.is_installed()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--version"], [onescan.__version__]),
        (["--help"], ["demo", "script.py", "-m module", "--report", "--strict"]),
        (["demo", "--help"], ["--quick", "--out FILE", "onescan-demo.png"]),
    ],
)
def test_help(arguments, words, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(arguments)
    shown = capsys.readouterr().out
    assert all(word in shown for word in words)
