"""Every example runs as a user runs it, and does what it says."""

import importlib.util
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "three_numbers": "gives 6 and [3 4 5]",
    "train_mlp": "1000 training steps, compiled as one loop",
    "decoder_stack": "4 layers with dropout: scan and unrolled differ by",
}


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_runs_as_a_script(name):
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
    assert load(name).__doc__.endswith(f"Run it with `python examples/{name}.py`.\n")


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


@pytest.mark.parametrize("key", [None, 5], ids=["no key", "key"])
def test_decoder_equals_the_unrolled_stack(key):
    decoder = load("decoder_stack")
    config = decoder.Config(layers=2)
    params = decoder.init_params(0, config)
    seq = jax.random.normal(jax.random.key(1), (2, 7, config.model))
    key = None if key is None else jax.random.key(key)

    @partial(jax.jit, static_argnums=0)
    @partial(jax.value_and_grad, argnums=1, has_aux=True)
    def run(stack, params):
        out = stack(params, seq, key=key, model_config=config)
        return jnp.mean(out**2), out

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5),
        run(decoder.decoder, params),
        run(decoder.unrolled_decoder, params),
    )


def test_decoder_is_causal_and_dropout_changes_it():
    decoder = load("decoder_stack")
    config = decoder.Config(layers=2)
    params = decoder.init_params(0, config)
    seq = jax.random.normal(jax.random.key(1), (1, 6, config.model))

    def run(seq, key=None):
        return decoder.decoder(params, seq, key=key, model_config=config)

    changed = run(seq.at[:, 3].add(1.0))
    np.testing.assert_allclose(changed[:, :3], run(seq)[:, :3], atol=1e-5)
    assert (jnp.abs(changed - run(seq))[:, 3:].max(axis=(0, 2)) > 1e-3).all()
    a, b = run(seq, jax.random.key(2)), run(seq, jax.random.key(3))
    assert jnp.abs(a - b).max() > 1e-2


LLAMA_BLOCK = """\
DecoderBlock(
  input_norm=float32[{n}4096],
  attention=Attention(
    q_proj=float32[{n}4096,1,32,128],
    k_proj=float32[{n}4096,32,128],
    v_proj=float32[{n}4096,32,128],
    out_proj=float32[{n}1,32,128,4096]
  ),
  post_attn_norm=float32[{n}4096],
  gate_proj=float32[{n}4096,11008],
  up_proj=float32[{n}4096,11008],
  down_proj=float32[{n}11008,4096]
)"""


def test_llama_at_full_size_from_shapes_alone():
    told = load("decoder_stack").explain_llama()
    listings = dict(told.listings())
    assert listings["xs, as stacked"] == LLAMA_BLOCK.format(n="32,")
    assert listings["x, in the body"] == LLAMA_BLOCK.format(n="")
    assert listings["carry"] == "(None, float32[1,2048,4096])"
    assert listings["ys, as stacked"] == "None"


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
