"""Code that is kept for the next process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import jax
import pytest

from onescan.runtime import compiler, disk, kept

MODULE = f"""
target triple = "{compiler.triple()}"
target datalayout = "{compiler.data_layout()}"
define i64 @answer() {{
  ret i64 42
}}
"""


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept._make_room.cache_clear()
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", True)
    yield
    jax.config.update("jax_enable_compilation_cache", before)


def made(text="text", makers=(__file__,)):
    """The code of a text, and whether it was made."""
    calls = []

    def make():
        calls.append(text)
        return f"code of {text}".encode()

    assert kept.code(text, makers, make) == f"code of {text}".encode()
    return bool(calls)


def files():
    return sorted(disk.folder("code").iterdir())


def test_code_is_made_once():
    assert [made(), made(), made("another"), made("another")] == [1, 0, 1, 0]
    assert len(files()) == 2


def test_machine_code_is_made_once(monkeypatch):
    first = compiler.link(MODULE, ["answer"])
    monkeypatch.setattr(compiler, "optimised", None)  # LLVM is not asked again
    second = compiler.link(MODULE, ["answer"])
    assert first.addresses != second.addresses


def test_other_makers_make_other_code(tmp_path):
    maker = tmp_path / "maker.py"
    maker.write_text("x = 1")
    assert made(makers=(str(maker),))
    assert not made(makers=(str(maker),))
    kept._written.cache_clear()
    maker.write_text("x = 2")
    assert made(makers=(str(maker),))


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_damaged_files_count_as_none(damage):
    made()
    (path,) = files()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?" if damage is None else damage)
    assert made()
    assert path.read_bytes() == whole


def test_nothing_is_kept_where_jax_keeps_nothing():
    jax.config.update("jax_enable_compilation_cache", False)
    assert [made(), made()] == [1, 1]
    assert not disk.folder("code").exists()


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [made(), made()] == [1, 1]


def test_what_was_not_used_for_longest_goes(monkeypatch):
    for k in range(4):
        made(str(k))
    each = files()[0].stat().st_size
    for age, text in enumerate("3120"):  # the last one was used last
        name = disk.key_of(kept.VERSION, kept._written(__file__), text)
        os.utime(disk.folder("code") / name, (age, age))
    assert not made("1")  # used, which counts
    monkeypatch.setattr(kept, "MOST", 3 * each)
    monkeypatch.setattr(kept, "ENOUGH", 2 * each)
    kept._make_room.cache_clear()
    made("new")
    assert [made(text) for text in "10"] == [0, 0]
    assert [made(text) for text in "32"] == [1, 1]


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_names_are_the_same_in_every_process(platform):
    """Of kernels, and of what is measured, whatever the order of sets is."""
    code = """
    import sys
    import jax, jax.numpy as jnp, onescan
    from onescan.targets import target_of
    from onescan.targets.nvidia import machine
    from onescan.tune import store
    machine.chip = lambda: machine.Chip(90, 132)
    def body(c, x):
        w = jnp.linalg.cholesky(jnp.eye(3) + c[:3, None] * c[:3])
        return jnp.tanh(c * x + w.sum()), (jax.lax.top_k(c, 2), jnp.sort(c))
    from onescan.lowering import hook, pipeline
    from onescan.targets.cpu.kernel import name_of
    from onescan.targets.nvidia import launch
    def planned(loop, target, settings, planned=pipeline.planned):
        made = planned(loop, target, settings)
        name = name_of if target.platform == "cpu" else launch.name_of
        print(name(made.kernel), store.key_of(target.machine))
        return made
    pipeline.planned = planned
    with onescan.options(tune=False):
        f = jax.jit(lambda c, x: onescan.scan(body, c, x))
        f.trace(jnp.ones(9), jnp.ones(7)).lower(lowering_platforms=(sys.argv[1],))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), platform]

    def run(seed):
        env = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first, *others = map(run, range(4))
    assert len(first) == 2
    assert all(found == first for found in others)


def test_a_second_process_asks_llvm_for_nothing(tmp_path):
    code = """
    import jax, jax.numpy as jnp, onescan
    from onescan.runtime import compiler
    asked, made = [], compiler._made
    compiler._made = lambda *args: asked.append(args) or made(*args)
    f = jax.jit(lambda c, x: onescan.scan(lambda c, x: (jnp.sin(c) + x, c), c, x))
    carry, ys = f(jnp.float32(0.5), jnp.linspace(0.0, 1.0, 7))
    print(len(asked), float(carry), onescan.report().rows[0].engine)
    """

    def run():
        command = [sys.executable, "-c", textwrap.dedent(code)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first, second = run(), run()
    assert int(first[0]) > 0
    assert second[0] == "0"
    assert first[1:] == second[1:]
    assert first[2] == "native"
