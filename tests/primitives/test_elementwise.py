"""Elementwise primitives in a loop, in every type, under both engines."""

from __future__ import annotations

import old_xla
import pytest
from engine_elementwise import ALL
from engine_operations import SHAPES, trouble_with
from engines import kernels_alone, run


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


#: types that take long to compile are tried in lanes alone
SLOW = ("float16", "bfloat16")
KINDS = [
    (kind, dtype)
    for kind in (SHAPES if old_xla.NEWEST else ["vmapped"])
    for dtype in ALL
    if dtype not in SLOW or kind == ("lanes" if old_xla.NEWEST else "vmapped")
]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_every_operation(kind: str, dtype: str) -> None:
    trouble = trouble_with(dtype, kind, run)
    assert not trouble, "\n" + "\n".join(trouble)
