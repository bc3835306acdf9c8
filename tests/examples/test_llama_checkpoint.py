"""Checkpoints: there and back, without a second copy, and what is wrong with them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from llama_models import SMALL, numpy_params

from examples.llama.checkpoint import INDEX, load, save
from examples.llama.config import (
    CONFIGS,
    CheckpointError,
    Config,
    RopeScaling,
    from_hugging_face,
    read_config,
    to_hugging_face,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "llama"


@pytest.mark.parametrize("shard_bytes", [1 << 30, 2000])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_there_and_back(tmp_path, shard_bytes, dtype):
    params = numpy_params(SMALL, dtype)
    save(tmp_path, params, SMALL, shard_bytes)
    assert (tmp_path / INDEX).exists() == (shard_bytes == 2000)
    again, config = load(tmp_path)
    assert config == Config(**vars(SMALL) | {"dropout": 0.0})
    assert jax.tree.structure(again) == jax.tree.structure(params)
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(again), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_converted_on_the_way(tmp_path):
    save(tmp_path, numpy_params(), SMALL)
    params, _ = load(tmp_path, "bfloat16")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {"bfloat16"}


@pytest.mark.parametrize("kind", ["grouped", "tied"])
def test_what_transformers_wrote_is_written_back_as_it_was(kind, tmp_path):
    params, config = load(FIXTURES / kind)
    save(tmp_path, params, config)
    again, _ = load(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, params, again)
    assert (again.lm_head is None) == (kind == "tied")


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_there_and_back(name):
    assert from_hugging_face(to_hugging_face(CONFIGS[name], "float32")) == CONFIGS[name]


def test_rope_scaling_in_both_spellings():
    config = Config(2, 8, 1, 2, 4, 8, 8, rope_scaling=RopeScaling(), rope_theta=5e5)
    told = to_hugging_face(config, "float32")
    assert from_hugging_face(told) == config
    told["rope_parameters"] = told.pop("rope_scaling")
    told["rope_parameters"]["rope_theta"] = told.pop("rope_theta")
    assert from_hugging_face(told) == config


PEAK = """
import sys
import jax
from examples.llama.checkpoint import load
load(sys.argv[1])  # imports and arenas
def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(l.split()[1]) for l in lines if l.startswith(name)) * 1024
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
params, _ = load(sys.argv[2])
size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
print((status("VmHWM") - before) / size)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_the_peak_of_memory_is_one_copy_and_one_leaf(tmp_path):
    config = Config(8, 256, 1, 8, 32, 512, 1024)
    save(tmp_path / "small", numpy_params(), SMALL)
    save(tmp_path / "large", numpy_params(config), config)
    command = [sys.executable, "-c", PEAK, tmp_path / "small", tmp_path / "large"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert 0.9 < float(done.stdout) < 1.7  # two copies would be 2


@pytest.fixture
def broken(tmp_path):
    """A good checkpoint to break: one file, and the table of its tensors."""
    return Path(shutil.copytree(FIXTURES / "full", tmp_path / "model"))


def change_config(folder, **change):
    path = folder / "config.json"
    told = json.loads(path.read_text()) | change
    path.write_text(json.dumps(told))


def change_table(folder, change):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    change(table)
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


Q = "model.layers.1.self_attn.q_proj.weight"
BROKEN = {
    "no config": (
        lambda at: (at / "config.json").unlink(),
        r"config.json does not exist. A checkpoint is a folder with config.json",
    ),
    "no JSON": (
        lambda at: (at / "config.json").write_text("{"),
        r"config.json is not JSON: ",
    ),
    "another model": (
        lambda at: change_config(at, model_type="mamba"),
        r"config.json: model_type is 'mamba', not 'llama'",
    ),
    "biases": (
        lambda at: change_config(at, attention_bias=True),
        r"attention_bias is set, which is not supported",
    ),
    "activation": (
        lambda at: change_config(at, hidden_act="gelu"),
        r"hidden_act is 'gelu', not 'silu'",
    ),
    "heads": (
        lambda at: change_config(at, num_key_value_heads=3),
        r"num_attention_heads is 4, not a multiple of num_key_value_heads, 3",
    ),
    "no size": (
        lambda at: change_config(at, hidden_size=None),
        r"hidden_size must be an integer >= 1, but it is None",
    ),
    "rope": (
        lambda at: change_config(at, rope_parameters={"rope_type": "yarn"}),
        r"rope scaling 'yarn' is not supported, only 'llama3'",
    ),
    "rope fields": (
        lambda at: change_config(at, rope_parameters={"rope_type": "llama3"}),
        r"rope scaling 'llama3' needs 'factor'",
    ),
    "no file": (
        lambda at: (at / "model.safetensors").unlink(),
        r"model has neither model.safetensors nor model.safetensors.index.json",
    ),
    "no shard": (
        lambda at: (at / INDEX).write_text('{"weight_map": {"a": "b.safetensors"}}'),
        r"b.safetensors does not exist; .* has tensor a in it",
    ),
    "not in its shard": (
        lambda at: (at / INDEX).write_text(
            '{"weight_map": {"a": "model.safetensors"}}'
        ),
        r"model.safetensors has no tensor a, which .*index.json has in it",
    ),
    "no index": (
        lambda at: (at / INDEX).write_text("[]x"),
        r"index.json is no index: it has no weight_map",
    ),
    "cut short": (
        lambda at: (at / "model.safetensors").write_bytes(
            (at / "model.safetensors").read_bytes()[:-40]
        ),
        r"is cut short: it ends at byte \d+, and tensor \S+ reaches to byte \d+",
    ),
    "cut in its table": (
        lambda at: (at / "model.safetensors").write_bytes(
            (at / "model.safetensors").read_bytes()[:100]
        ),
        r"is not a safetensors file, or is cut short: it has 100 bytes",
    ),
    "no table": (
        lambda at: (at / "model.safetensors").write_bytes(bytes([4] + [0] * 40)),
        r"is not a safetensors file: its table is not JSON",
    ),
    "missing tensor": (
        lambda at: change_table(at, lambda table: table.pop(Q)),
        rf"has no tensor {Q}, which its config.json asks for",
    ),
    "one layer more": (
        lambda at: change_config(at, num_hidden_layers=1),
        r"has a tensor model.layers.1.\S+, for which its config.json has no place",
    ),
    "shape": (
        lambda at: change_config(at, intermediate_size=25),
        r"tensor model.layers.0.mlp.gate_proj.weight in .* has the shape \(24, 16\), "
        r"and config.json asks for \(25, 16\)",
    ),
    "type": (
        lambda at: change_table(at, lambda table: table[Q].update(dtype="I32")),
        rf"tensor {Q} in .* is of type I32; supported are F64, F32, F16, BF16",
    ),
    "bytes": (
        lambda at: change_table(at, lambda table: table[Q].update(dtype="BF16")),
        rf"tensor {Q} in .* has 1024 bytes, and its shape \(16, 16\) of BF16 needs 512",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_clear_error(case, broken):
    change, message = BROKEN[case]
    load(broken)
    change(broken)
    with pytest.raises(CheckpointError, match=message):
        load(broken)


def test_no_folder():
    with pytest.raises(CheckpointError, match=r"nowhere/config.json does not exist"):
        read_config("nowhere")
