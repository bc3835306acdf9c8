"""The elementary functions: within two units in the last place, on every target."""

from __future__ import annotations

import math
import platform
from typing import Any

import jax
import llvmlite.binding as llvm
import ml_dtypes
import mpmath
import numpy as np
import old_xla
import pytest
from llvmlite import ir
from math_loops import (
    BINARY,
    ELEMENTS,
    compiled,
    loop_module,
    machine,
    ulps_of_double,
    ulps_of_single,
)
from math_references import (
    DOUBLE,
    EDGES,
    EXACT,
    SINGLE,
    WIDE,
    arguments,
    double_case,
    sample,
    single_case,
)

from onescan.emit.math import FUNCTIONS, const

LIMIT = 2.0
MEASURED = sorted(FUNCTIONS)
#: functions that read subnormal numbers on every processor, as XLA's do
READ_AS_THEY_ARE = {
    *(("lgamma", SINGLE), ("pow", SINGLE), ("pow", DOUBLE)),
    *(("atan2", SINGLE), ("atan2", DOUBLE)),
}
on_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="sets a control word of x86"
)


@pytest.fixture(autouse=True)
def quiet_numpy():
    """The references meet infinities and signalling NaNs on purpose."""
    with np.errstate(all="ignore"):
        yield


def assert_close(
    inputs: tuple[np.ndarray, ...],
    got: np.ndarray,
    error: np.ndarray,
    limit: float = LIMIT,
):
    worst = int(np.argmax(error))
    at = ", ".join(repr(x[worst]) for x in inputs)
    assert error[worst] <= limit, f"{error[worst]:.2f} ulp at {at}: got {got[worst]!r}"


# `x86-64` has no fused multiply-add: accuracy must hardly depend on it.
TARGETS = ["host", *(["x86-64"] if platform.machine() == "x86_64" else [])]


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("name", MEASURED)
def test_float32_is_accurate(name: str, cpu: str):
    inputs, want = single_case(name)
    got = compiled(name, SINGLE, SINGLE, 8, cpu)(*inputs)
    limit = 2.1 if (name, cpu) == ("tanh", "x86-64") else LIMIT
    assert_close(inputs, got, ulps_of_single(got, want), limit)


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("name", MEASURED)
def test_float64_is_accurate(name: str, cpu: str):
    inputs, want = double_case(name)
    got = compiled(name, DOUBLE, DOUBLE, 8, cpu)(*inputs)
    assert_close(inputs, got, ulps_of_double(got, want))


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_scalars_and_vectors_agree(name: str, dtype: Any):
    inputs = arguments(name, dtype, 300)
    vector = compiled(name, dtype, dtype, 8)(*inputs)
    np.testing.assert_array_equal(
        compiled(name, dtype, dtype, 1)(*inputs), vector, strict=True
    )


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"log2"}))
def test_edges_are_those_of_xla(name: str, dtype: Any):
    edges = np.array(EDGES, dtype)
    inputs = (edges[~old_xla.wrong_at(name, edges)],)
    if name in BINARY:
        inputs = tuple(x.ravel() for x in np.meshgrid(edges, edges))
    with jax.enable_x64(True):
        want = np.asarray(jax.jit(getattr(jax.lax, name))(*inputs))
    got = compiled(name, dtype, dtype, 8)(*inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_digamma_of_zero_is_minus_infinity(dtype: Any):
    zeros = np.array([0.0, -0.0], dtype)
    assert np.all(compiled("digamma", dtype, dtype, 8)(zeros) == -math.inf)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles_closest_to_quarter_turns(name: str, dtype: Any):
    """The hardest cases of the reduction, found by continued fractions of pi."""
    angles = []
    with mpmath.workprec(1300):
        precision = np.finfo(dtype).nmant + 1
        for exponent in range(1, np.finfo(dtype).maxexp - precision):
            fraction = mpmath.ldexp(2 / mpmath.pi, exponent)
            angles += _best_numerators(fraction, precision, exponent)
        x = np.array([float(a) for a in angles]).astype(dtype)
        want = [EXACT[name](mpmath.mpf(float(a))) for a in x]
    got = compiled(name, dtype, dtype, 8)(x)
    if dtype == DOUBLE:
        error = ulps_of_double(got, want)
    else:
        error = ulps_of_single(got, np.array([float(w) for w in want]))
    assert_close((x,), got, error)


@pytest.mark.parametrize("width", [32, 33])
def test_huge_angles_in_vectors_of_several_registers(width: int):
    x = np.random.default_rng(0).uniform(-1e9, 1e9, 40 * width)
    x[: 2 * width] = np.linspace(-4, 4, 2 * width)
    alone, together = (compiled("sin", DOUBLE, DOUBLE, w)(x) for w in (1, width))
    np.testing.assert_array_equal(together, alone, strict=True)


def _best_numerators(fraction: Any, precision: int, exponent: int) -> list[Any]:
    """Integers m of that precision for which m * fraction is almost an integer."""
    last, m, rest = 0, 1, fraction - mpmath.floor(fraction)
    found = []
    while m < 2**precision and rest:
        if m >= 2 ** (precision - 1):
            found.append(mpmath.ldexp(m, exponent))
        inverse = 1 / rest
        step = int(mpmath.floor(inverse))
        last, m, rest = m, last + step * m, inverse - step
    return found or [mpmath.ldexp(last, exponent)]


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_left_of_zero(name: str):
    """float32 is exact there too; float64 is, against the terms that cancel."""
    x = np.random.default_rng(0).uniform(-30, 0, 400)
    single = x.astype(SINGLE)
    want = [EXACT[name](mpmath.mpf(float(a))) for a in single]
    got = compiled(name, SINGLE, SINGLE, 8)(single)
    error = ulps_of_single(got, np.array([float(w) for w in want]))
    assert_close((single,), got, error)

    want = [EXACT[name](mpmath.mpf(float(a))) for a in x]
    got = compiled(name, DOUBLE, DOUBLE, 8)(x)
    other = WIDE[name](1 - x if name == "digamma" else -x)
    with jax.enable_x64(True):
        xla = np.asarray(jax.jit(getattr(jax.lax, name))(x))
    units = np.spacing(np.maximum(1.0, np.maximum(np.abs(other), np.abs(got))))
    ours, theirs = (
        np.array([float(abs(r - w)) for r, w in zip(map(float, y), want, strict=True)])
        for y in (got, xla)
    )
    assert np.max(ours / units) <= 4
    assert np.max(ours / units) <= np.max(theirs / units)


@on_x86
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("name", MEASURED)
def test_flushing_subnormal_numbers_changes_nothing_else(name: str, dtype: Any):
    """XLA runs kernels with subnormal numbers read and written as zero."""
    inputs = arguments(name, dtype, 2000)
    tiny = np.finfo(dtype).tiny

    def flush(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < tiny, x * 0, x)

    read = inputs if (name, dtype) in READ_AS_THEY_ARE else map(flush, inputs)
    want = compiled(name, dtype, dtype, 8)(*read)
    got = compiled(name, dtype, dtype, 8, flush=True)(*inputs)
    np.testing.assert_allclose(flush(got), flush(want), 4 * np.finfo(dtype).eps, 0)


@on_x86
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("processor", TARGETS)
def test_digamma_of_almost_zero(processor: str, flush: bool):
    """The parts of a product with pi are subnormal there, and may be lost."""
    size = 2.0 ** -np.random.default_rng(0).uniform(40, 1021, 4000)
    x = np.concatenate([-size, size])
    got = compiled("digamma", DOUBLE, DOUBLE, 8, processor, flush)(x)
    want = -1 / x - np.euler_gamma
    np.testing.assert_allclose(got, want, 2 * np.finfo(DOUBLE).eps, 0)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("processor", TARGETS)
@pytest.mark.parametrize(
    ("name", "start", "at_end", "at_other_end"),
    [("erf", 4, 1, -1), ("erfc", 28, 0, 2), ("tanh", 9.1, 1, -1)],
)
def test_it_ends_at_whole_numbers(
    name: str, start: float, at_end: int, at_other_end: int, processor: str, dtype: Any
):
    """A number just below one is a zero once it is made an integer."""
    start *= 1 if dtype is SINGLE else 2.2
    x = np.array([*np.linspace(start, 90, 100), 700, np.inf], dtype)
    f = compiled(name, dtype, dtype, 8, processor)
    np.testing.assert_array_equal(f(x), dtype(at_end))
    np.testing.assert_array_equal(f(-x), dtype(at_other_end))


SCALED = ["exp", "exp2", "sinh", "cosh", "erfc"]
DIVIDED = ["tanh", "logistic"]
#: where exp and exp2 leave the normal numbers
ENDS = """
    88 88.72283 88.722837 88.7229 89 -87.3 -87.34 -88 -103.9 -104.1 709.7 709.79 710
    -708.3 -708.5 -745 -746 127.99 128 -126.2 -149.5
"""


@pytest.mark.skipif(
    not llvm.get_host_cpu_features().get("avx512f"), reason="needs AVX-512"
)
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("name", [*SCALED, *DIVIDED])
def test_avx512_gives_the_same(name: str, dtype: Any, flush: bool):
    more = np.array([*EDGES, *map(float, ENDS.split())], dtype)
    inputs = [np.concatenate([x, more]) for x in arguments(name, dtype, 3000)]
    for width in (16, 64):
        formula, instruction = (
            compiled(name, dtype, dtype, width, "host", flush, features)(*inputs)
            for features in ((), ("avx512",))
        )
        if name in SCALED:
            np.testing.assert_array_equal(instruction, formula, strict=True)
        else:  # a division by hand may round the other way where it is close
            np.testing.assert_allclose(instruction, formula, np.finfo(dtype).eps, 0)
    module = loop_module(name, dtype, dtype, 16, flush, ("avx512",))
    used = "llvm.x86.avx512" in str(module)
    assert used == (name in SCALED or dtype is SINGLE)
    if dtype is SINGLE:
        inputs, want = single_case(name)
        got = compiled(name, SINGLE, SINGLE, 16, features=("avx512",))(*inputs)
        assert_close(inputs, got, ulps_of_single(got, want))


HALF = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


#: with and without conversions by the processor
CONVERTS = [(), *([("f16c",)] if llvm.get_host_cpu_features().get("f16c") else [])]


@pytest.mark.parametrize("features", CONVERTS)
@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("half", HALF)
def test_half_to_float32_for_every_pattern(half: str, width: int, features: Any):
    bits = np.arange(2**16, dtype=np.uint16)
    name = f"{half}_to_float32"
    got = compiled(name, np.uint16, SINGLE, width, features=features)(bits)
    want = bits.view(HALF[half]).astype(SINGLE)
    np.testing.assert_array_equal(got, want, strict=True)
    np.testing.assert_array_equal(np.signbit(got), bits >= 2**15)


@pytest.mark.parametrize(
    ("cpu", "features"),
    [*((cpu, ()) for cpu in TARGETS), *(("host", f) for f in CONVERTS if f)],
)
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("half", HALF)
def test_rounding_to_half(half: str, dtype: Any, cpu: str, features: Any):
    """Every half, the ties between them, and what is next to both."""
    patterns = np.arange(2**15 + 1, dtype=np.uint16)
    exact = patterns.view(HALF[half]).astype(DOUBLE)
    exact = exact[np.isfinite(exact)]
    ties = (exact[1:] + exact[:-1]) / 2
    numbers = np.concatenate([exact, ties, [1e5, 65519.99, 65520.0, 1e39, math.inf]])
    numbers = numbers.astype(dtype)
    around = [numbers, np.nextafter(numbers, 0), np.nextafter(numbers, dtype(math.inf))]
    x = np.concatenate([*around, sample(dtype, 20_000)])
    x = np.concatenate([x, -x])
    name = f"{np.dtype(dtype).name}_to_{half}"
    convert = compiled(name, dtype, np.uint16, 8, cpu, features=features)
    got = convert(x).view(HALF[half])
    want = _round_to_half(x, HALF[half])
    np.testing.assert_array_equal(got.astype(SINGLE), want.astype(SINGLE))
    number = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(x[number]))


def _round_to_half(x: np.ndarray, half: np.dtype) -> np.ndarray:
    """One rounding: ml_dtypes goes from float64 through float32, and may round twice.

    Rounding to float32 towards an odd last bit first makes the second one right.
    """
    single = x.astype(SINGLE)
    if x.dtype == DOUBLE:
        above = np.abs(single.astype(DOUBLE)) > np.abs(x)
        towards_zero = np.where(above, np.nextafter(single, SINGLE(0)), single)
        inexact = towards_zero.astype(DOUBLE) != x
        bits = towards_zero.view(np.uint32) | (inexact & ~np.isnan(x))
        single = bits.astype(np.uint32).view(SINGLE)
    return single.astype(half)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_ptx_calls_nothing_outside(name: str, dtype: Any):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    machine = target.create_target_machine(cpu="sm_80", opt=2)
    source = loop_module(name, dtype, dtype, 1, False)
    source.triple = "nvptx64-nvidia-cuda"
    ptx = machine.emit_assembly(llvm.parse_assembly(str(source)))
    assert ".visible .func loop" in ptx
    assert ".extern" not in ptx


@on_x86
@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_plain_x86_calls_nothing_outside(name: str, dtype: Any, width: int):
    module = llvm.parse_assembly(str(loop_module(name, dtype, dtype, width, False)))
    assembly = machine("x86-64", codemodel="default").emit_assembly(module)
    called = {line.split()[1] for line in assembly.splitlines() if "\tcall" in line}
    assert all("onescan." in callee for callee in called), called


def test_functions_cover_the_primitives():
    names = "exp exp2 expm1 log log1p logistic tanh sin cos tan asin acos atan atan2 "
    names += "sinh cosh asinh acosh atanh sqrt rsqrt cbrt pow erf erfc erf_inv lgamma "
    names += "digamma log2"
    assert set(FUNCTIONS) == set(names.split())


def test_constants_of_a_vector_are_written_once():
    vector = ir.VectorType(ELEMENTS[SINGLE], 16)
    assert str(const(vector, 0.5)) == "<16 x float> splat (float 0x3fe0000000000000)"
    assert str(const(ELEMENTS[DOUBLE], 0.5)) == "double 0x3fe0000000000000"
