"""One record for each primitive: complete, and with a rule where it says so."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from onescan.emit.rules import RULES
from onescan.primitives import PRIMITIVES, named
from onescan.primitives.record import Kind, Primitive, strike_all

#: kinds whose records say how axes join, and what else they must not leave to a default
TOLD = set(get_args(Kind)) - {"library", "unknown"}
#: kinds whose work is not a number for each element
WORKING = {"reduction", "cumulative", "product", "sort", "update", "matrix"}


def test_every_rule_has_a_record_and_every_record_a_rule() -> None:
    assert {name for name, r in PRIMITIVES.items() if r.kind in TOLD} == set(RULES)


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_record_is_complete(name: str) -> None:
    record = PRIMITIVES[name]
    assert record.name == name
    assert record.kind in get_args(Kind)
    if record.kind in TOLD:
        assert record.axes is not strike_all, "say which axes it joins and strikes"
    if record.kind == "elementwise":
        assert record.work is None, "an elementwise primitive is told by its cost"
    elif record.kind in WORKING:
        assert record.work is not None, "say what it does"


def test_what_nobody_knows_mixes_everything() -> None:
    unknown = named("no such primitive")
    assert (unknown.kind, unknown.axes) == ("unknown", strike_all)


def test_the_fields_are_those_that_the_recipe_names() -> None:
    """docs/extending.md tells how to fill them in."""
    names = {field.name for field in fields(Primitive)}
    assert names == set(
        "name kind cost axes work refuses refuses_alone linear exact light collects "
        "words".split()
    )
