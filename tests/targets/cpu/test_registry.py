"""How long the code of kernels stays: as long as anything may call it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handmade import axpy
from jax.experimental import serialize_executable
from processes import output
from sampling import WHOLE

import onescan
from onescan.lowering import hook
from onescan.targets.cpu import kernel as cpu
from onescan.targets.cpu import registry

X = np.linspace(0, 1, 12, dtype=np.float32)

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="programs for a GPU hold their code"
)


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    forget()
    with onescan.engine("native"):
        yield


def loop(a: float) -> Callable[[Any], Any]:
    """A loop with a kernel of its own."""
    body = lambda c, x: (c * np.float32(a) + x, None)
    return lambda x: onescan.scan(body, jnp.float32(0), x)[0]


def by_python(a: float) -> Any:
    c = np.float32(0)
    for x in X:
        c = c * np.float32(a) + x
    return c


def forget() -> None:
    """Drop every compiled program, and what is kept of the last loops."""
    jax.clear_caches()
    hook._of_the_same.cache_clear()
    gc.collect()
    registry.sweep()


def test_code_goes_with_the_programs_that_call_it() -> None:
    before = registry.loaded()
    for k in range(5):
        jax.jit(loop(0.1 + k))(X)
    assert registry.loaded() == before + 5
    forget()
    assert registry.loaded() == before


def test_a_compiled_program_keeps_its_kernel() -> None:
    compiled = jax.jit(loop(0.25)).lower(X).compile()
    forget()
    np.testing.assert_allclose(compiled(X), by_python(0.25), rtol=1e-6)
    before = registry.loaded()
    del compiled
    forget()
    assert registry.loaded() == before - 1


def test_a_lowered_program_keeps_its_kernel() -> None:
    lowered = jax.jit(loop(0.35)).lower(X)
    forget()
    compiled = lowered.compile()
    del lowered
    forget()
    np.testing.assert_allclose(compiled(X), by_python(0.35), rtol=1e-6)


def test_a_kernel_that_is_needed_again() -> None:
    """By the same code while it is there, compiled again when it is gone."""
    for kept in (True, False):
        first = jax.jit(loop(0.45)).lower(X).compile()
        if not kept:
            del first
            forget()
        jax.clear_caches()
        np.testing.assert_allclose(jax.jit(loop(0.45))(X), by_python(0.45), rtol=1e-6)


def test_an_executable_that_was_serialised() -> None:
    compiled = jax.jit(loop(0.55)).lower(X).compile()
    stored = serialize_executable.serialize(compiled)
    again = serialize_executable.deserialize_and_load(*stored)
    del compiled
    forget()
    np.testing.assert_allclose(again(X), by_python(0.55), rtol=1e-6)
    del again
    forget()
    with pytest.raises(Exception, match="lower and compile the function again"):
        serialize_executable.deserialize_and_load(*stored)


def test_an_executable_of_two_kernels_that_was_serialised() -> None:
    """Made by threads, of which none is written."""
    both = lambda x: loop(0.56)(x) + loop(0.57)(x)
    stored = serialize_executable.serialize(jax.jit(both).lower(X).compile())
    again = serialize_executable.deserialize_and_load(*stored)
    np.testing.assert_allclose(again(X), by_python(0.56) + by_python(0.57), rtol=1e-6)


def test_a_kernel_that_nobody_has() -> None:
    call = jax.ffi.ffi_call(registry.TARGET, jax.ShapeDtypeStruct((), jnp.float32))
    with pytest.raises(Exception, match="that this process does not have"):
        jax.jit(lambda: call(high=np.int64(1), low=np.int64(2)))()


def test_threads_that_compile_and_forget() -> None:
    def work(k: int) -> bool:
        a = 0.6 + k % 3 / 100
        with onescan.engine("native"):
            result = jax.jit(loop(a))(X)
        if k % 4 == 0:
            forget()
        return bool(np.allclose(result, by_python(a), rtol=1e-6))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(24)))
    forget()


def test_code_in_hand_is_not_unloaded() -> None:
    code = cpu.code(axpy(8, 4, a=0.77))
    record = registry._kernels[code.name][1]
    registry.sweep()
    assert cpu.code(axpy(8, 4, a=0.77)) is code
    assert registry._native().remove(record) == 0
    name = code.name
    del code
    gc.collect()
    registry.sweep()
    assert name not in registry._kernels


@pytest.mark.parametrize("engine", ["native", "xla"] if WHOLE else ["native"])
def test_memory_of_many_loops(engine: str) -> None:
    """What stays of each after it was forgotten: some KB, of LLVM and of XLA."""
    code = f"""
        import gc, jax, onescan
        from pathlib import Path
        from test_registry import X, forget, loop

        def resident():
            forget()
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4

        def compile(first, count):
            for k in range(first, first + count):
                jax.jit(loop(0.5 + k / 1000))(X)

        with onescan.engine("{engine}"):
            compile(0, 100)  # threads fill what memory they are given first
            before = resident()
            compile(100, 60)
            print((resident() - before) / 60)
    """
    assert float(output(code, beside=__file__)) < 40, "kilobytes of a loop"
