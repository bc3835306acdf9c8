"""What holds for the whole suite.

Hypothesis draws the same examples in every run, and new ones in `make fuzz`.
"""

from __future__ import annotations

import os

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
