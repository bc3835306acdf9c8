"""Every example in a docstring of the package runs as written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import onescan

MODULES = [
    module.name
    for module in pkgutil.walk_packages(onescan.__path__, "onescan.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_scan_has_examples():
    (found,) = doctest.DocTestFinder(recurse=False).find(onescan.scan, "scan")
    assert len(found.examples) >= 7
