"""The CPU runtime, with kernels written by hand, called through JAX."""

from __future__ import annotations

import gc
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from guarded import call_directly
from handmade import axpy, cumulative_sum, declared, per_tile, witness
from jax.interpreters import mlir
from llvmlite import ir
from processes import output, python

from onescan.runtime import compiler
from onescan.targets.cpu import available, handler, registry
from onescan.targets.cpu import kernel as cpu

F32 = jnp.float32

several_cores = pytest.mark.skipif(available.cores() < 2, reason="needs two cores")


CODES: list[cpu.Code] = []
EIGHT = "--xla_force_host_platform_device_count=8"


def caller(kernel: cpu.Kernel, *results: tuple[tuple[int, ...], object]):
    """The kernel as a function of arrays."""
    types = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
    code = cpu.code(kernel)
    CODES.append(code)  # a plain call says nothing about the code that it needs
    call = jax.ffi.ffi_call(registry.TARGET, types)
    return lambda *args: call(*args, **code.attributes)


def call_axpy(kernel: cpu.Kernel, x, y):
    return caller(kernel, (x.shape, F32))(x, y)[0]


def numbers(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize(
    ("tiles", "grain"), [(1, 1), (2, 1), (7, 1), (7, 3), (64, 1), (1000, 7), (3, 100)]
)
def test_every_tile_is_done_once(tiles: int, grain: int, threads: bool):
    x, y = numbers(tiles * 5), numbers(tiles * 5, seed=1)
    kernel = axpy(tiles, 5, threads, grain)
    np.testing.assert_array_equal(call_axpy(kernel, x, y), 2 * x + y)


@pytest.mark.parametrize("threads", [False, True])
def test_time_runs_inside_a_tile(threads: bool):
    x = numbers(50 * 33).reshape(50, 33)
    got = caller(cumulative_sum(50, 33, threads), (x.shape, F32))(x)[0]
    np.testing.assert_allclose(got, np.cumsum(x, axis=0), rtol=1e-5, atol=1e-5)


def test_no_operands():
    def body(b, tile, out):
        b.store(tile, b.gep(out, [tile], source_etype=ir.IntType(64)))

    with jax.enable_x64(True):
        got = caller(per_tile(body, 0, 1, 9), ((9,), jnp.int64))()[0]
        np.testing.assert_array_equal(got, np.arange(9))


@pytest.mark.parametrize("threads", [False, True])
def test_no_tiles_and_empty_buffers(threads: bool):
    empty = jnp.zeros((0,), F32)
    assert call_axpy(axpy(0, 5, threads), empty, empty).shape == (0,)


def test_amid_other_operations():
    x, y = numbers(640), numbers(640, seed=1)
    kernel = axpy(64, 10, threads=True)

    @jax.jit
    def f(x, y):
        return jnp.sin(call_axpy(kernel, x + 1, jnp.cos(y))) * 2

    expected = jnp.sin(2 * (x + 1) + jnp.cos(y)) * 2
    np.testing.assert_allclose(f(x, y), expected, rtol=1e-5, atol=1e-6)


def test_inside_a_while_loop():
    x = numbers(640)
    kernel = axpy(64, 10, threads=True, a=0.5)

    @jax.jit
    def f(x):
        return jax.lax.while_loop(
            lambda c: c[0] < 300,
            lambda c: (c[0] + 1, call_axpy(kernel, c[1], x)),
            (0, x),
        )[1]

    np.testing.assert_allclose(f(x), 2 * x, rtol=1e-5)


def test_several_calls_at_once_in_one_program():
    kernels = [axpy(64, 100, threads=True, a=float(k)) for k in range(8)]
    x, y = numbers(6400), numbers(6400, seed=1)
    f = jax.jit(lambda x, y: [call_axpy(kernel, x, y) for kernel in kernels])
    for _ in range(20):
        for k, got in enumerate(f(x, y)):
            np.testing.assert_allclose(got, k * x + y, rtol=1e-5, atol=1e-6)


def test_called_from_several_python_threads():
    kernel = axpy(64, 100, threads=True, a=3.0)
    f = jax.jit(lambda x, y: call_axpy(kernel, x, y))
    y = numbers(6400)

    def calls(seed: int) -> None:
        x = numbers(6400, seed)
        for _ in range(50):
            np.testing.assert_allclose(f(x, y), 3 * x + y, rtol=1e-5, atol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(calls, range(8)))


def test_compiled_once_from_several_python_threads(monkeypatch: pytest.MonkeyPatch):
    compiled = []
    link = compiler.link

    def counting(*args):
        compiled.append(args)
        return link(*args)

    handler.runtime()
    monkeypatch.setattr(compiler, "link", counting)
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: cpu.code(axpy(3, 3, a=0.125)), range(16)))
    assert len(set(names)) == 1
    assert len(compiled) == 1


def test_more_calls_than_the_pool_can_take():
    kernel = axpy(2, 1, threads=True)
    x = numbers(2)

    @jax.jit
    def f(x):
        return jax.lax.fori_loop(
            0, 20_000, lambda _, c: call_axpy(kernel, x, c * 0 + x), x
        )

    np.testing.assert_allclose(f(x), 3 * x, rtol=1e-6)


@several_cores
def test_threads_are_used_and_agree_with_xla_about_subnormals():
    x = np.full(64, 1e-40, np.float32)
    x[::2] = 1.5e-38  # half of it is subnormal
    with jax.enable_x64(True):
        kernel = witness(64, factor=0.5)
        threads, got = caller(kernel, ((64,), jnp.uint64), ((64,), F32))(x)
    threads = np.asarray(threads)
    assert threading.get_ident() in threads
    assert len(set(threads.tolist())) > 1
    np.testing.assert_array_equal(got, jax.jit(lambda x: x * F32(0.5))(x))


@pytest.mark.parametrize("threads", [False, True])
def test_the_same_result_every_time(threads: bool):
    x = numbers(50 * 33).reshape(50, 33)
    f = jax.jit(caller(cumulative_sum(50, 33, threads), (x.shape, F32)))
    first = np.asarray(f(x)[0])
    for _ in range(20):
        assert np.asarray(f(x)[0]).tobytes() == first.tobytes()


def test_lowering_of_a_primitive_with_layouts():
    kernel = cumulative_sum(4, 6)
    rule = cpu.lowering(cpu.code(kernel), [(0, 1)], [(0, 1)])
    primitive = jax.extend.core.Primitive("test_runtime_cumulative_sum")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, rule, platform="cpu")
    x = numbers(24).reshape(6, 4)  # column-major: what the kernel sees is x.T
    got = jax.jit(primitive.bind)(x)
    np.testing.assert_allclose(got, np.cumsum(x, axis=1), rtol=1e-5, atol=1e-6)


def test_different_kernels_have_different_names():
    kernels = [
        axpy(8, 4),
        axpy(8, 4, a=3.0),
        axpy(16, 4),
        axpy(8, 4, threads=True),
        axpy(8, 4, threads=True, grain=2),
        axpy(8, 5),
    ]
    names = [cpu.name_of(kernel) for kernel in kernels]
    assert len(set(names)) == len(names)
    assert all(name.startswith("onescan_") for name in names)
    assert cpu.name_of(axpy(8, 4)) == names[0]


def test_the_name_is_the_same_in_another_process():
    code = """
        from handmade import axpy
        from onescan.targets.cpu import kernel as cpu
        print(cpu.name_of(axpy(8, 4, threads=True)))
    """
    assert output(code) == cpu.name_of(axpy(8, 4, threads=True))


def test_the_persistent_cache_is_used_by_the_next_process(tmp_path: Path):
    code = """
        import jax, numpy as np
        from handmade import axpy
        from test_kernel import call_axpy

        hits = []
        jax.monitoring.register_event_listener(
            lambda name, **_: hits.append(name) if "cache_hits" in name else None)
        jax.config.update("jax_compilation_cache_dir", sys.argv[1])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        x = np.arange(32, dtype=np.float32)
        got = jax.jit(lambda x: call_axpy(axpy(8, 4, threads=True), x, x))(x)
        np.testing.assert_array_equal(got, 3 * x)
        print(len(hits))
    """
    assert output(code, str(tmp_path), beside=__file__) == "0"
    assert output(code, str(tmp_path), beside=__file__) == "1"


def test_eight_devices_on_one_machine():
    code = """
        import jax, numpy as np
        from handmade import axpy
        from test_kernel import call_axpy

        f = jax.jit(lambda x: call_axpy(axpy(64, 10, threads=True), x, x))
        x = np.arange(640, dtype=np.float32)
        for _ in range(20):
            outs = [f(jax.device_put(x, device)) for device in jax.devices()]
            for out in outs:
                np.testing.assert_array_equal(out, 3 * x)
        print(len(jax.devices()))
    """
    assert output(code, flags=EIGHT, beside=__file__) == "8"


def test_a_forked_child_can_call_compiled_code():
    code = """
        import os, warnings, jax, numpy as np
        from handmade import axpy
        from test_kernel import call_axpy

        f = jax.jit(lambda x: call_axpy(axpy(64, 10, threads=True), x, x))
        x = np.arange(640, dtype=np.float32)
        np.testing.assert_array_equal(f(x), 3 * x)
        warnings.simplefilter("ignore")  # JAX and Python warn about forks
        child = os.fork()
        if child == 0:
            for _ in range(5):
                np.testing.assert_array_equal(f(x), 3 * x)
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert output(code, beside=__file__) == "7"


def test_a_module_that_llvm_refuses():
    kernel = axpy(8, 4)
    kernel.module.functions[0].blocks[-1].instructions.clear()
    with pytest.raises(compiler.CompilerError, match="expected instruction opcode"):
        cpu.code(kernel)


def test_a_module_that_the_verifier_refuses():
    def body(b, tile, x, out):
        late = b.append_basic_block("late")
        value = ir.IRBuilder(late).add(tile, tile)
        ir.IRBuilder(late).unreachable()
        b.store(value, out)

    with pytest.raises(compiler.CompilerError, match="does not dominate all uses"):
        cpu.code(per_tile(body, 1, 1, 4))


def test_a_function_that_is_nowhere():
    def body(b, tile, x, out):
        b.call(declared(b.module, "no_such_function", ir.VoidType()), [])

    for _ in range(2):  # the second attempt says the same
        with pytest.raises(compiler.CompilerError, match="no_such_function"):
            cpu.code(per_tile(body, 1, 1, 4))


def test_what_people_can_look_at():
    kernel = cumulative_sum(50, 33)
    assert "alloca float" in str(kernel.module)
    assert "alloca" not in cpu.optimised_ir(kernel)
    assert "kernel:" in cpu.assembly(kernel)


def test_memory_of_many_kernels():
    def resident() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    for k in range(20):
        cpu.code(axpy(8, 4, a=1000.0 + k))
    before = resident()
    for k in range(100):
        cpu.code(axpy(8, 4, a=2000.0 + k))
    assert (resident() - before) / 100 < 100, "kilobytes per kernel"


@pytest.mark.parametrize("side", ["start", "end"])
def test_calling_directly(side):
    x, y = numbers(35), numbers(35, seed=1)
    kernel = axpy(7, 5)
    (got,) = call_directly(kernel, [x, y], [((35,), np.float32)], side)
    np.testing.assert_array_equal(got, 2 * x + y)
    (got,) = call_directly(
        kernel, [x, y], [((35,), np.float32)], side, ranges=[(3, 7), (0, 3)]
    )
    np.testing.assert_array_equal(got, 2 * x + y)


@pytest.mark.parametrize("broken", ["operand", "result"])
def test_a_kernel_that_leaves_its_buffers_dies(broken: str):
    code = """
        import numpy as np
        from guarded import call_directly
        from handmade import axpy
        x = np.zeros(35, np.float32)
        y = np.zeros(35 if sys.argv[1] == "result" else 34, np.float32)
        size = 35 if sys.argv[1] == "operand" else 34
        call_directly(axpy(7, 5), [x, y], [((size,), np.float32)])
    """
    assert python(code, broken).returncode == -signal.SIGSEGV


def test_a_kernel_that_writes_beside_an_aligned_buffer_is_found():
    x = np.zeros(35, np.float32)
    with pytest.raises(AssertionError, match="wrote beside a buffer"):
        call_directly(axpy(7, 5), [x, x], [((34,), np.float32)], alignment=64)


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(),
    reason="this system has pages of one size",
)
def test_large_results_come_in_large_pages():
    """The memory of a result is marked so ("hg") where its kernel knows its size."""
    size = 1 << 23
    x = numbers(size // 4)
    kernel = replace(axpy(1 << 18, 8, a=0.5), result_bytes=(size,))
    result = jax.block_until_ready(call_axpy(kernel, x, x))
    assert "hg" in _flags_at(result.unsafe_buffer_pointer() + size // 2)
    np.testing.assert_allclose(result, 1.5 * x, rtol=1e-6)


def _flags_at(address: int) -> list[str]:
    """What the system knows about the memory at an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError("no memory there")
