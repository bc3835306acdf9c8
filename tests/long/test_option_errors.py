"""What the options of scan refuse, and in which words."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan
from onescan.long.options import in_bytes


def step(carry, x):
    return carry + x, carry


XS = jnp.arange(4.0)
HERE = rf"for step \(.*test_option_errors\.py:{step.__code__.co_firstlineno}\), "


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"checkpoint": "fast"},
            ValueError,
            r"checkpoint must be a number of segments",
        ),
        ({"checkpoint": "10 lb"}, ValueError, r'or a budget .*"100MB", but it is'),
        ({"checkpoint": 0}, ValueError, r"checkpoint must be at least 1 segment.* 0"),
        ({"checkpoint": True}, TypeError, r"checkpoint must be .* it is True"),
        ({"checkpoint": 2.5}, TypeError, r"checkpoint must be .* it is 2\.5"),
        ({"progress": 3}, TypeError, r"progress must be True, a description, a bar"),
        ({"metrics": len}, ValueError, r"metrics .* need progress=True"),
        ({"progress": True, "metrics": 3}, TypeError, r"metrics must be a function"),
        (
            {"progress": True, "metrics": lambda c, y: c},
            ValueError,
            r"metrics must give a dict of single numbers, but it gives float32\[\]",
        ),
        (
            {"progress": True, "metrics": lambda c, y: {"a": jnp.ones(3)}},
            ValueError,
            r"but it gives 'a': float32\[3\]\. Reduce arrays",
        ),
        ({"until": 3}, ValueError, r"until must be a function of the carry.* it is 3"),
        ({"until": lambda c: c}, ValueError, r"until must give one bool.*float32\[\]"),
        (
            {"until": lambda c: jnp.ones(2, bool)},
            ValueError,
            r"it gives bool\[2\]\. Reduce it, as in jnp\.all",
        ),
        ({"until": lambda c: None}, ValueError, r"one bool, but it gives None"),
        ({"where": [True]}, ValueError, r"where must be bool\[4\].* it is bool\[1\]"),
        (
            {"where": np.ones(4)},
            ValueError,
            r"one bool per step, but it is float32\[4\]",
        ),
        ({"where": "yes"}, ValueError, r"where must be bool\[4\].* a str"),
        ({"check": "nan"}, ValueError, r'check must be "finite", but it is \'nan\''),
    ],
)
def test_refusals(options, error, text):
    with pytest.raises(error, match=f"onescan.scan: {HERE}.*{text}"):
        onescan.scan(step, 0.0, XS, **options)


def test_a_budget_that_nothing_fits():
    with pytest.raises(
        onescan.ScanValueError,
        match=r'checkpoint="5B" for step .* is too little for the gradient of 4 steps, '
        r"which takes .* MB at least",
    ):
        onescan.scan(step, 0.0, XS, checkpoint="5B")


def test_more_steps_than_can_be_counted():
    with pytest.raises(onescan.ScanValueError, match=r"3,000,000,000 are too many"):
        onescan.scan(lambda c, x: (c, x), 0.0, None, 3 * 10**9, progress=True)


def test_a_carry_that_changes_is_told_as_ever():
    with pytest.raises(onescan.ScanTypeError, match="changes the type of its carry"):
        onescan.scan(lambda c, x: (c.astype(int), x), jnp.ones(3), XS, checkpoint=2)


def test_first_nonfinite_needs_values():
    with pytest.raises(onescan.ScanTypeError, match=re.escape('check="finite") there')):
        jax.jit(lambda c: onescan.first_nonfinite(step, c, XS))(0.0)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5B", 5),
        ("1kB", 1000),
        ("1 KiB", 1024),
        ("1.5MB", 1_500_000),
        ("2GiB", 2 << 30),
    ],
)
def test_bytes(text, size):
    assert in_bytes(text) == size
