"""Compile an elementary function into a loop over arrays, and measure its error."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import mpmath
import numpy as np
from llvmlite import ir

from onescan.emit.math import FUNCTIONS, halves
from onescan.emit.math.features import allow

I64 = ir.IntType(64)
PTR = ir.PointerType()
ELEMENTS: dict[Any, ir.Type] = {
    np.float32: ir.FloatType(),
    np.float64: ir.DoubleType(),
    np.uint16: ir.IntType(16),
}
BINARY = ("atan2", "pow")
FLUSH_AND_ZERO = 0x9FC0  # the control word XLA runs its kernels under


def emitter(name: str) -> Callable[..., Any]:
    return FUNCTIONS.get(name) or getattr(halves, name)


def loop_module(
    name: str,
    inp: Any,
    out: Any,
    width: int,
    flush: bool,
    features: tuple[str, ...] = (),
) -> ir.Module:
    """`loop(n, inputs..., output)`, over n elements, a multiple of the width."""
    count = 2 if name in BINARY else 1
    module = ir.Module()
    allow(module, features)
    signature = ir.FunctionType(ir.VoidType(), [I64, *[PTR] * (count + 1)])
    function = ir.Function(module, signature, "loop")
    n, *inputs, output = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    if flush:
        control = b.alloca(ir.IntType(32), size=2)
        saved = b.gep(control, [I64(1)], source_etype=ir.IntType(32))
        word = ir.FunctionType(ir.VoidType(), [PTR])
        store = ir.Function(module, word, "llvm.x86.sse.stmxcsr")
        load = ir.Function(module, word, "llvm.x86.sse.ldmxcsr")
        b.call(store, [saved])
        b.store(ir.IntType(32)(FLUSH_AND_ZERO), control)
        b.call(load, [control])
    entry, body = b.block, function.append_basic_block("body")
    b.branch(body)
    b.position_at_end(body)
    i = b.phi(I64)
    i.add_incoming(I64(0), entry)

    def lanes(element: ir.Type) -> ir.Type:
        return ir.VectorType(element, width) if width > 1 else element

    def at(pointer: ir.Value, element: ir.Type) -> Any:
        return b.gep(pointer, [i], source_etype=element)

    element = ELEMENTS[inp]
    values = [b.load(at(p, element), typ=lanes(element), align=1) for p in inputs]
    b.store(emitter(name)(b, *values), at(output, ELEMENTS[out]), align=1)
    following = b.add(i, I64(width))
    i.add_incoming(following, b.block)
    end = function.append_basic_block("end")
    b.cbranch(b.icmp_unsigned("<", following, n), body, end)
    b.position_at_end(end)
    if flush:
        b.call(load, [saved])
    b.ret_void()
    return module


def machine(cpu: str, codemodel: str = "jitdefault") -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = cpu == "host"
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name() if host else cpu,
        features=llvm.get_host_cpu_features().flatten() if host else "",
        opt=2,
        codemodel=codemodel,
    )


@cache
def compiled(
    name: str,
    inp: Any,
    out: Any,
    width: int,
    cpu: str = "host",
    flush: bool = False,
    features: tuple[str, ...] = (),
) -> Callable[..., np.ndarray]:
    text = str(loop_module(name, inp, out, width, flush, features))
    module = llvm.parse_assembly(text)
    module.verify()
    target = machine(cpu)
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(2))
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    count = 2 if name in BINARY else 1
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (count + 1))
    function = prototype(engine.get_function_address("loop"))

    def call(*inputs: np.ndarray) -> np.ndarray:
        size = inputs[0].size
        padded = -(-size // width) * width
        buffers = [np.resize(x.astype(inp), padded) for x in inputs]
        result = np.empty(padded, out)
        function(padded, *(x.ctypes.data for x in buffers), result.ctypes.data)
        return result[:size]

    call.engine = engine  # the code lives as long as its engine
    return call


def ulps_of_single(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """The error of float32 results in units in the last place of float64 references.

    Infinity counts as the number that would follow the largest; NaN must meet NaN.
    """
    info = np.finfo(np.float32)
    limit = 2.0**info.maxexp
    actual = np.clip(got.astype(np.float64), -limit, limit)
    wanted = np.clip(want, -limit, limit)
    with np.errstate(invalid="ignore"):
        exponent = np.clip(np.frexp(wanted)[1] - 1, info.minexp, info.maxexp - 1)
        error = np.ldexp(np.abs(actual - wanted), info.nmant - exponent)
    error = np.where(np.isnan(got) != np.isnan(want), np.inf, error)
    return np.where(np.isnan(got) & np.isnan(want), 0.0, error)


def ulps_of_double(got: np.ndarray, want: list[mpmath.mpf]) -> np.ndarray:
    """The same for float64 results against mpmath's numbers."""
    info = np.finfo(np.float64)
    limit = mpmath.ldexp(1, info.maxexp)
    errors = []
    for value, wanted in zip(map(float, got), want, strict=True):
        if mpmath.isnan(wanted) or np.isnan(value):
            same = mpmath.isnan(wanted) and np.isnan(value)
            errors.append(0.0 if same else np.inf)
            continue
        wanted = max(-limit, min(limit, wanted))
        actual = max(-limit, min(limit, mpmath.mpf(value)))
        exponent = int(mpmath.frexp(wanted)[1]) - 1 if wanted else info.minexp
        place = min(max(exponent, info.minexp), info.maxexp - 1) - info.nmant
        errors.append(float(mpmath.ldexp(abs(actual - wanted), -int(place))))
    return np.array(errors)
