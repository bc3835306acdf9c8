"""A pytest plugin: notes every loop that the tests of a library compile.

    PYTHONPATH=benchmarks CENSUS=diffrax.jsonl pytest -p census_plugin diffrax/test

Tests run under `install()`, so their results are checked by themselves.  The file has a
line for each loop of each test; `census.py --suites diffrax.jsonl` counts them.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from census import found_in_report

import onescan

OUT = Path(os.environ.get("CENSUS", "census.jsonl"))


def pytest_configure(config: Any) -> None:
    onescan.install()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: Any, nextitem: Any) -> Any:
    onescan.clear_report()
    yield
    with OUT.open("a") as file:
        for found in found_in_report(f"{OUT.stem} (tests)/{item.name}"):
            file.write(json.dumps(asdict(found)) + "\n")
