"""Processors that this machine is not: fewer features of x86, and aarch64.

Loops run with the features of older x86 processors; for aarch64 the assembly is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from unittest import mock

import jax.numpy as jnp
import pytest
from cases import CASES
from kernels import loop_in
from llvmlite import binding
from processes import output
from sampling import sample

import onescan
from onescan.emit.math.features import AVX512, F16C, FP16, NEON
from onescan.lowering import pipeline
from onescan.runtime import compiler
from onescan.switches import Settings
from onescan.targets.cpu import handler
from onescan.targets.cpu.build import build
from onescan.targets.cpu.machine import Machine, host
from onescan.targets.cpu.plan import choose
from onescan.targets.cpu.target import Cpu

ARM = "aarch64-unknown-linux-gnu"
#: features of an ordinary laptop, and of the first x86 processors with 64 bits
OLDER = {
    "avx2": "+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt",
    "sse2": "+sse2",
}

RUN = """
import jax, jax.numpy as jnp, numpy as np
import onescan
from onescan.runtime import compiler
from onescan.targets.cpu.machine import host

compiler._processor = lambda: ("x86-64", sys.argv[1])
assert host().vector_bytes == int(sys.argv[2])


def body(c, x):
    half = (c["half"] * jnp.float16(0.5) + x.astype(jnp.float16)).astype(jnp.float16)
    new = {"single": jnp.tanh(c["single"]) + jnp.sin(x), "half": half,
           "int": c["int"] // 3 + (c["int"] << 2)}
    return new, (jnp.sort(c["single"]), c["single"].sum(), jnp.exp(c["single"]))


init = {"single": jnp.linspace(-1, 1, 37), "half": jnp.linspace(-1, 1, 37, dtype="f2"),
        "int": jnp.arange(37)}
loop = lambda: onescan.scan(body, init, jnp.ones(3))
results = []
for engine in ("native", "xla"):
    with onescan.engine(engine):
        results.append(jax.jit(lambda: loop())())


def close(a, b):
    np.testing.assert_allclose(a, b, 2e-3 if a.dtype == "f2" else 2e-6, 2e-6)


jax.tree.map(close, *results)
print("agree")
"""


@pytest.mark.skipif(not compiler.triple().startswith("x86_64"), reason="needs an x86")
@pytest.mark.parametrize(("name", "bytes"), [("avx2", 32), ("sse2", 16)])
def test_older_x86(name: str, bytes: int) -> None:
    assert output(RUN, OLDER[name], str(bytes)) == "agree"


def test_halves_on_aarch64_are_converted_by_the_processor() -> None:
    """In integers a step of 64 numbers takes forty times as many instructions."""
    with mock.patch.object(compiler, "triple", return_value=ARM):
        machine = host.__wrapped__()
    half = jnp.float16
    loop = loop_in(
        lambda x: onescan.scan(lambda c, v: (c * half(0.5) + v, None), x[:], x[:9, 0]),
        jnp.ones((64, 64), half),
    )
    module, _ = build(choose(loop, Machine(16, cores=2, features=machine.features)))
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(ARM).create_target_machine(opt=3, reloc="pic")
    module.triple, module.data_layout = ARM, str(target.target_data)
    with compiler.optimised(str(module), machine=target) as optimised:
        code = target.emit_assembly(optimised)
    assert re.search(r"\tfcvtn", code)
    assert not re.search(r"\tcmhi", code)
    assert "bl\t__" not in code


@pytest.mark.parametrize(
    ("dtype", "features", "threads"),
    [
        ("float32", {F16C}, False),
        ("float16", {F16C}, True),
        ("float16", {F16C, FP16}, False),
        ("bfloat16", {F16C, FP16}, True),
    ],
)
def test_halves_that_are_converted_are_sooner_worth_threads(
    dtype: str, features: set[str], threads: bool
) -> None:
    """One thread took 264 us for what two do in 178, and XLA's one in 217."""
    step = lambda c, x: (c * jnp.asarray(0.5, dtype) + x, None)
    loop = loop_in(
        lambda c, xs: onescan.scan(step, c, xs)[0],
        jnp.ones(4096, dtype),
        jnp.ones(300, dtype),
    )
    plan = choose(loop, Machine(64, cores=2, features=frozenset(features)))
    assert plan.threads is threads


@dataclass(frozen=True)
class Processor:
    triple: str
    name: str  # in LLVM's words
    vector_bytes: int
    features: frozenset[str] = frozenset()


X86 = "x86_64-unknown-linux-gnu"
PROCESSORS = {
    "x86 of 2003": Processor(X86, "x86-64", 16),
    "x86 with SSE4": Processor(X86, "x86-64-v2", 16),
    "x86 with AVX2": Processor(X86, "x86-64-v3", 32, frozenset({F16C})),
    "x86 with AVX-512": Processor(X86, "x86-64-v4", 64, frozenset({F16C, AVX512})),
    "aarch64": Processor(ARM, "generic", 16, frozenset({F16C, NEON})),
    "aarch64 with SVE": Processor(ARM, "neoverse-v1", 16, frozenset({F16C, NEON})),
}
#: functions of LLVM's own library, which no process has to have
LIBRARY = re.compile(rb"\0(__\w*(?:hf|sf|df|tf|ti|di|si)\w*\d)\0")


def object_of(text: str, processor: Processor) -> bytes:
    """The object file of a module for a processor that this one need not be."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(processor.triple).create_target_machine(
        cpu=processor.name, opt=3, reloc="pic", codemodel="small"
    )
    head = f'target triple = "{processor.triple}"\n'
    head += f'target datalayout = "{target.target_data}"\n'
    rest = "\n".join(n for n in text.splitlines() if not n.startswith("target "))
    with compiler.optimised(head + rest, machine=target) as module:
        return target.emit_object(module)


@pytest.mark.parametrize("name", sample(CASES, 8))
def test_loops_for_every_processor(name: str) -> None:
    """Each loop has machine code for each, and needs no library for it."""
    f, init, xs, options = CASES[name].problem()
    loop = loop_in(lambda init, xs: onescan.scan(f, init, xs, **options), init, xs)
    for processor in PROCESSORS.values():
        machine = Machine(processor.vector_bytes, 2, processor.features)
        decision = pipeline.decide(loop, Cpu(machine), Settings(engine="native"))
        assert decision.kernels or not loop.length, decision.reason
        for compiled in decision.kernels:
            code = object_of(str(compiled.kernel.module), processor)
            assert b"kernel" in code
            assert not LIBRARY.findall(code), processor


@pytest.mark.parametrize("processor", PROCESSORS.values(), ids=list(PROCESSORS))
def test_vectors_for_every_processor(processor: Processor) -> None:
    """Conversions, reversals, strides, gathers and remainders, which differ most."""

    def step(c, x):
        far = (c * 9).astype(jnp.int32)
        some = c.at[far].get(mode="clip") + jnp.fmod(c[::-1], x)
        return jnp.tanh(some) + jnp.resize(c[::2], 64), far.astype(jnp.uint8)

    loop = loop_in(
        lambda c, xs: onescan.scan(step, c, xs), jnp.ones(64), jnp.ones((9, 64))
    )
    machine = Machine(processor.vector_bytes, 2, processor.features)
    module, _ = build(choose(loop, machine))
    saturates = "fptosi.sat" in str(module)
    assert saturates == (NEON in processor.features)
    code = object_of(str(module), processor)
    assert not LIBRARY.findall(code)


@pytest.mark.parametrize("processor", PROCESSORS.values(), ids=list(PROCESSORS))
def test_the_runtime_for_every_processor(processor: Processor) -> None:
    with (
        mock.patch.object(compiler, "triple", return_value=processor.triple),
        mock.patch.object(compiler, "data_layout", return_value=""),
    ):
        text = handler.runtime_text()
    code = object_of(text, processor)
    assert b"onescan_instantiate" in code
    assert not LIBRARY.findall(code)
