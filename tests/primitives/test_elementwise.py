"""Elementwise primitives in a loop, in every type, under both engines."""

from __future__ import annotations

import old_xla
import pytest
from engine_elementwise import ALL
from engine_operations import SHAPES, trouble_with
from engines import kernels_alone, run
from sampling import WHOLE


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


#: types that take long to compile are tried in lanes alone
SLOW = ("float16", "bfloat16")
#: every kind with float32, and one with each other type, in turns
KINDS = [
    (kind, dtype)
    for i, kind in enumerate(SHAPES)
    for j, dtype in enumerate(ALL)
    if (dtype == "float32" or WHOLE or (i + j) % len(SHAPES) == 0) and dtype not in SLOW
]
KINDS += [("lanes", dtype) for dtype in SLOW]
if not old_xla.NEWEST:
    KINDS = [("vmapped", dtype) for dtype in ALL]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_every_operation(kind: str, dtype: str) -> None:
    trouble = trouble_with(dtype, kind, run)
    assert not trouble, "\n" + "\n".join(trouble)
