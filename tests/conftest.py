"""What holds for the whole suite.

Hypothesis draws the same examples in every run, and new ones in `make fuzz`.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import jax
import pytest
import sampling
from hypothesis import HealthCheck, settings

from onescan import switches

# Compiling takes most of the time, so neither time nor health means anything here.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("fuzz", settings.get_profile("suite"), derandomize=False)
settings.load_profile("suite")
# what a busy machine measures must not decide what is tested
switches.set_globally(tune=False)
# Kernels are made here, once for all processes of a run, whatever others have kept.
FOLDER = os.environ.get("ONESCAN_TESTS_CACHE")
if FOLDER is None:
    os.environ["ONESCAN_TESTS_CACHE"] = tempfile.mkdtemp(prefix="onescan-tests-")
    os.environ["XDG_CACHE_HOME"] = os.environ["ONESCAN_TESTS_CACHE"]
# Most of the time was XLA's optimisation of what is run once, for a comparison. The
# environment, for the processes that tests start; `make test-all` optimises.
if not sampling.WHOLE:
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    jax.config.update("jax_disable_most_optimizations", True)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if not sampling.WHOLE:
        kept = sampling.in_turns(items)
        left = set(items).difference(kept)
        config.hook.pytest_deselected(items=[test for test in items if test in left])
        items[:] = kept


def pytest_unconfigure() -> None:
    if FOLDER is None:  # this process made it
        shutil.rmtree(os.environ["ONESCAN_TESTS_CACHE"], ignore_errors=True)
