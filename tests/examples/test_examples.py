"""Every example runs as a user runs it, and does what it says."""

import importlib.util
import re
import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "three_numbers": "gives 6 and [3 4 5]",
    "train_mlp": "1000 training steps, compiled as one loop",
    "digits": "accuracy on the 297 images it has not seen: 9",
    "char_gru": "60 steps: from",
    "ppo_cartpole": "3 steps of PPO, 12288 moments in 32 worlds",
    "fit_kalman": "4000 measurements, 20 steps",
}
TRAINING = ("digits", "char_gru", "ppo_cartpole", "fit_kalman")  # have a quick mode


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_runs_as_a_script(name, tmp_path, monkeypatch, capsys):
    script = str(EXAMPLES / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [script, "--quick"])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(script, run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out
    assert load(name).__doc__.endswith(f"Run it with `python examples/{name}.py`.\n")
    plots = [f"{name}.png"] if name in TRAINING else []
    assert [path.name for path in tmp_path.iterdir()] == plots


def test_three_numbers(capsys):
    total, outputs = load("three_numbers").main()
    assert total == 6
    assert outputs.tolist() == [3, 4, 5]
    assert "2          3   3           6   5" in capsys.readouterr().out


def test_training_learns_and_equals_the_python_loop():
    mlp = load("train_mlp")
    start = mlp.init_params(jax.random.key(1))
    batches = mlp.make_batches(jax.random.key(2), 300)
    params, losses = mlp.train(start, batches)
    assert losses[-10:].mean() < losses[:10].mean() / 20

    state = mlp.Training(start, jax.tree.map(jnp.zeros_like, start))
    step = jax.jit(mlp.train_step)
    for i in range(20):
        state, loss = step(state, jax.tree.map(lambda leaf: leaf[i], batches))
        np.testing.assert_allclose(losses[i], loss, rtol=1e-3)
    assert jax.tree.structure(params) == jax.tree.structure(start)


def test_the_code_of_the_readme_runs(capsys):
    readme = (EXAMPLES.parent / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(blocks) == 3
    try:
        namespace = {}
        for block in blocks:
            exec(compile(block, "README.md", "exec"), namespace)
    finally:
        onescan.uninstall()
    printed = capsys.readouterr().out
    table = re.search(r"```\n(  step .*?)```", readme, re.DOTALL).group(1)
    assert table in printed
