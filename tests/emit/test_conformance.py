"""A sample of `make conformance`: operations that are exact stay so."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import arrays, elementwise, inputs
from conformance.compared import Found, compared

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
