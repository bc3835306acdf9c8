"""The hash of a GPU thread that is alone: its PTX, run by hand, and who has it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from gpu_lowering import launches_of
from jax.extend.random import threefry_2x32

import onescan
from onescan.targets.nvidia import hash_chain

WORD = 0xFFFFFFFF


def run(*words: int) -> tuple[int, int]:
    """What the text computes from two words of a key and two of a count."""
    values = {f"${i}": word for i, word in enumerate((*words, 0, 1), start=2)}
    value = lambda name: values[name] if name in values else int(name, 0)
    for line in hash_chain.text().splitlines():
        if line in ("{", "}") or line.startswith(".reg"):
            continue
        operation, names = line.rstrip(";").split(" ", 1)
        target, *operands = names.split(", ")
        found = OPERATIONS[operation](*map(value, operands))
        values[target] = found & WORD
    return values["$0"], values["$1"]


def parity(x: int, y: int, z: int, table: int) -> int:
    assert table == 0x96
    return x ^ y ^ z


def turn(high: int, low: int, by: int) -> int:
    assert high == low
    return high << by | low >> (32 - by)


OPERATIONS: dict[str, Any] = {
    "add.u32": lambda x, y: x + y,
    "mad.lo.u32": lambda x, y, z: x * y + z,
    "mov.b32": lambda x: x,
    "xor.b32": lambda x, y: x ^ y,
    "lop3.b32": parity,
    "shf.l.wrap.b32": turn,
}


@pytest.mark.parametrize("seed", range(20))
def test_it_is_threefry(seed: int) -> None:
    words = np.random.default_rng(seed).integers(0, WORD, 4, np.uint32, endpoint=True)
    key, count = jax.numpy.asarray(words[:2]), jax.numpy.asarray(words[2:])
    assert run(*map(int, words)) == tuple(map(int, threefry_2x32(key, count)))


def test_registers_are_its_own() -> None:
    text = hash_chain.text()
    assert text.startswith("{\n.reg .b32 key2, ")
    assert text.endswith("}")


def split_each_step(lanes: int | None) -> list[str]:
    """The code of a loop that splits a key a step, or one in each lane."""

    def chain(key):
        return onescan.scan(lambda k, _: (jax.random.split(k)[0], None), key, length=9)

    key = jax.random.key(0)
    if lanes is not None:
        chain, key = jax.vmap(chain), jax.random.split(key, lanes)
    return [launch.code for launch in launches_of(chain, key)]


@pytest.mark.parametrize("lanes", [None, 64])
def test_a_thread_alone_has_it(lanes: int | None) -> None:
    (code,) = split_each_step(lanes)
    assert "begin inline asm" in code


def test_a_thread_beside_others_has_not() -> None:
    (code,) = split_each_step(100_000)
    assert "begin inline asm" not in code


def test_not_where_all_words_are_wanted() -> None:
    """Hashes of one step fill each other's waits."""

    def step(key, _):
        key, *others = jax.random.split(key, 4)
        return key, jax.random.key_data(jax.numpy.stack(others))

    def loop(key):
        with onescan.options(sequential=True):
            return onescan.scan(step, key, length=9)

    codes = [launch.code for launch in launches_of(loop, jax.random.key(0))]
    assert codes
    assert not any("begin inline asm" in code for code in codes)
