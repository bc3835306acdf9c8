"""Elementwise primitives in a loop, in every type, under both engines."""

from __future__ import annotations

import pytest
from engine_elementwise import ALL
from engine_operations import SHAPES, trouble_with
from engines import kernels_alone, run
from sampling import WHOLE


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


#: one of them for each type, in turns
KINDS = [
    (kind, dtype)
    for i, kind in enumerate(SHAPES)
    for j, dtype in enumerate(ALL)
    if WHOLE or (i + j) % len(SHAPES) == 0
]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_every_operation(kind: str, dtype: str) -> None:
    trouble = trouble_with(dtype, kind, run)
    assert not trouble, "\n" + "\n".join(trouble)
