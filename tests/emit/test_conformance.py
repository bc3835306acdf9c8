"""A sample of `make conformance`: operations that are exact stay so."""

from __future__ import annotations

import platform

import jax
import jax.numpy as jnp
import numpy as np
import old_xla
import pytest
from conformance import arrays, complexes, elementwise, inputs, matrices
from conformance.compared import Found, compared
from engine_elementwise import OPS

from onescan.plan.work import equations
from onescan.primitives import PRIMITIVES

SAMPLE = {
    "int8": ("div", "rem", "shift_left", "shift_right_arithmetic", "abs", "clz"),
    "float16": ("to_int8", "to_uint32", "round_even", "sign", "reduce_precision_4_3"),
    "float32": ("nextafter", "to_bool", "is_finite", "reduce_precision_5_10"),
}
ARRAYS = ("sort", "gather fill", "scatter set clip")
SHAPES = ((0,), (1,), (3, 5))


def off(found: Found) -> bool:
    return bool(found.different or found.ulps)


@pytest.mark.parametrize("dtype", SAMPLE)
def test_exact_operations(dtype: str) -> None:
    found = list(elementwise.measured(dtype, SAMPLE[dtype], count=500))
    assert len(found) == len(SAMPLE[dtype])
    assert not [f for f in found if off(f)]


def test_exact_operations_on_arrays() -> None:
    found = list(arrays.measured("float32", ARRAYS, SHAPES))
    assert not [f for f in found if off(f)]


#: products of parts that overflow are infinite, or NaN where their difference is
#: rounded by itself: XLA does either, by the processor and the size of an array
OVERFLOWING = {"integer_pow_2", "integer_pow_-3"}
if platform.machine() != "x86_64":
    OVERFLOWING |= {"mul", "integer_pow_5"}


@pytest.mark.skipif(not old_xla.NEWEST, reason="older XLA has other infinities")
def test_complex_numbers() -> None:
    found = list(complexes.measured("complex64", complexes.names(), count=200))
    assert len(found) == len(complexes.names())
    different = {f.name: f.example for f in found if f.different}
    assert set(different) <= OVERFLOWING, different
    assert max(f.ulps for f in found) <= 4


def test_matrices_are_as_good_as_a_library_s() -> None:
    names = ["cholesky", "qr", "geqrf, ormqr", "eigh", "svd"]
    every = list(matrices.measured("complex64", names, ((8,), (5,))))
    assert [found.name for found in every] == names
    for found in every:
        assert found.ours <= 2 * max(found.theirs, 1), found


#: what only passes make, other JAX versions have or programs on several devices, and
#: what is inside of random numbers and of `solve`
ELSEWHERE = set(
    "add_any copy copy_p empty empty2 expand_dims iota_2x32_shape log2 "
    "lu_pivots_to_permutation one_minus_square onescan_eigh onescan_fft onescan_geqrf "
    "onescan_ormqr onescan_qr onescan_quotient onescan_svd "
    "optimization_barrier polynomial pvary reshard sharding_constraint "
    "threefry2x32 tile unstack unvmap_all unvmap_any".split()
)


@pytest.mark.skipif(not old_xla.NEWEST, reason="older JAX lacks some primitives")
def test_every_primitive_has_a_row() -> None:
    shown = lambda f, *args: jax.make_jaxpr(f)(*args).jaxpr
    with jax.enable_x64(True):
        jaxprs = [
            shown(op.f, *[jnp.ones(3, op.dtypes[0])] * op.arity) for op in OPS.values()
        ]
        for name, f in arrays.OPS.items():
            dtype = "int32" if name.startswith("reduce_") else "float32"
            x = jnp.ones(7 if name.startswith("select") else (3, 5), dtype)
            jaxprs.append(shown(f, x))
        jaxprs += [shown(op.f, jnp.eye(4)) for op in matrices.OPS.values()]
    seen = {eqn.primitive.name for jaxpr in jaxprs for eqn in equations(jaxpr)}
    known = {name for name, p in PRIMITIVES.items() if p.kind != "library"}
    assert known - seen - ELSEWHERE == set()


def test_differences_are_found() -> None:
    x = np.array([1, np.nan, 0, np.inf, -0.0, 1e-40], np.float32)
    same = compared("same", "float32", (x,), x, x.copy())
    assert (same.different, same.ulps, same.small) == (0, 0, 0)
    y = np.array([1 + 2**-22, 1, 1, -np.inf, 0.0, 0], np.float32)
    other = compared("other", "float32", (x,), x, y)
    assert other.different == 3  # NaN, an infinity, the sign of a zero
    assert other.example
    assert other.small == 1
    near = compared("near", "float32", (x,), x[:1], y[:1])
    assert (near.different, near.ulps) == (0, 2)
    wide = np.array([1.0, -3.0]), np.array([1 + 2**-51, -3 - 2**-50])
    assert compared("wide", "float64", wide[:1], *wide).ulps == 2


def test_all_numbers_of_small_types() -> None:
    (every,) = inputs.of_one("bfloat16")
    assert len(np.unique(every.view(np.uint16))) == 1 << 16
    x, y = inputs.of_two("int8")
    assert len(set(zip(x.tolist(), y.tolist(), strict=True))) == 1 << 16
