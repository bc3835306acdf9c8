"""The package itself: its names, and an installation whose compiler is missing."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from llvmlite import binding
from processes import output

import onescan
from onescan.lowering import llvm
from onescan.runtime import compiler

WITHOUT_LLVMLITE = """
import sys
sys.modules["llvmlite"] = None  # as if it were not installed
import jax.numpy as jnp
import onescan

carry, ys = onescan.scan(lambda c, x: (c + x, c * x), 0.0, jnp.arange(4.0))
assert (float(carry), ys.tolist()) == (6.0, [0.0, 0.0, 2.0, 9.0])
print(onescan.report().rows[0].reason)
told = onescan.explain(lambda c, x: (c + x, c * x), 0.0, [1.0, 2.0])
assert told.run.default.verdict.startswith("XLA runs this loop: llvmlite cannot")
assert "XLA" in str(told)
assert "XLA" in told._repr_html_()
try:
    with onescan.engine("native"):
        onescan.scan(lambda c, x: (c + x, None), 0.0, jnp.arange(4.0))
except onescan.EngineError as error:
    print(error)
"""


def test_dir_lists_the_public_names() -> None:
    assert {name for name in dir(onescan) if name[0] != "_"} == set(onescan.__all__)
    assert all(hasattr(onescan, name) for name in dir(onescan))


def test_without_llvmlite_every_loop_is_xlas() -> None:
    reason, error = output(WITHOUT_LLVMLITE).splitlines()
    assert reason.startswith("llvmlite cannot be imported here (ModuleNotFoundError")
    assert reason in error


def test_a_machine_that_llvm_does_not_know() -> None:
    def unknown(triple: str) -> Any:
        raise RuntimeError(
            f'No available targets are compatible with triple "{triple}"'
        )

    compiler_caches = (llvm.trouble, compiler.data_layout)
    _clear(compiler_caches)
    with mock.patch.object(binding.Target, "from_triple", unknown):
        onescan.clear_report()
        carry, _ = onescan.scan(lambda c, x: (c * x + 1, None), 1.0, [1.0, 2.0])
        (row,) = onescan.report().rows
    _clear(compiler_caches)
    assert float(carry) == 5.0
    assert row.engine == "xla"
    assert "LLVM makes no code for this machine (No available targets" in row.reason


def _clear(caches: tuple[Any, ...]) -> None:
    compiler._here.machine = None
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "aarch64-linux-gnu"])
def test_features_are_those_of_the_architecture(triple: str) -> None:
    """LLVM prints a line on stderr for each feature it does not know."""
    with mock.patch.object(compiler, "triple", return_value=triple):
        _, features = compiler._processor.__wrapped__()
    assert ("prefer-256-bit" in features) == triple.startswith("x86_64")
