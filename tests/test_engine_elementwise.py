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


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("kind", SHAPES if old_xla.NEWEST else ["vmapped"])
def test_every_operation(dtype: str, kind: str) -> None:
    trouble = trouble_with(dtype, kind, run)
    assert not trouble, "\n" + "\n".join(trouble)
