"""`python -m examples.llama`, as a user runs it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers

import onescan
from examples.llama.__main__ import main

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "llama"


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint whose forty tokens are words."""
    folder = Path(shutil.copytree(FIXTURES / "full", tmp_path / "model"))
    words = {f"w{i}": i for i in range(40)}
    model = tokenizers.models.WordLevel(words, unk_token="w0")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def run(*arguments):
    with onescan.engine("xla"):
        return main([str(argument) for argument in arguments])


def test_a_checkpoint_streams_text_and_a_rate(checkpoint, capsys):
    prompt = "w5 w17 w3 w8 w21 w30 w2 w9"  # the first of scripts/llama_parity.py
    options = ("--tokens", 12, "--chunk", 4)
    assert run("--checkpoint", checkpoint, "--prompt", prompt, *options) == 0
    told = capsys.readouterr()
    expected = np.load(FIXTURES / "full" / "expected.npz")["generated"][0]
    assert told.out.split() == [f"w{token}" for token in expected]
    assert re.search(r"^8 tokens read in .* s with compiling; [\d.]+ tok", told.err)


def test_random_weights(capsys):
    options = ("--tokens", 10, "--report", "--dtype", "float32", "--temperature", 1)
    assert run("--random-weights", "tiny", *options) == 0
    told = capsys.readouterr()
    assert re.fullmatch(r"(\d+ ){10}\n", told.out)
    assert re.search(r"loop +steps +engine", told.err)


def test_explain(capsys):
    assert run("--explain", "7b") == 0
    assert "q_proj=float32[32,4096,1,32,128]" in capsys.readouterr().out


MISTAKES = {
    "nowhere": (("--checkpoint", "nowhere"), r"nowhere/tokenizer.json does not exist"),
    "temperature": (
        ("--random-weights", "tiny", "--temperature", -1),
        r"temperature must be >= 0, but it is -1",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_line(case, capsys):
    arguments, message = MISTAKES[case]
    assert run(*arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"llama: .*{message}.*", line)


def test_a_broken_tokenizer(checkpoint, capsys):
    (checkpoint / "tokenizer.json").write_text("{}")
    assert run("--checkpoint", checkpoint) == 1
    assert re.match(r"llama: .*tokenizer.json is no token", capsys.readouterr().err)


def test_options_are_checked(capsys):
    with pytest.raises(SystemExit, match="2"):
        run("--random-weights", "tiny", "--tokens", "0")
    assert "argument --tokens: 0 is not positive" in capsys.readouterr().err
