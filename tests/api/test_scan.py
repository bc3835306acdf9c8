"""Every named loop, on every engine, under every transformation, by two oracles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from cases import CASES, DIFFERENTIABLE, FILES
from compare import assert_same
from sampling import sample
from transforms import OF_DERIVATIVES, TRANSFORMS, by_jax, by_reference

import onescan

ENGINES = {"auto": TRANSFORMS, "xla": ("plain", "grad")}  # "xla" hands all to JAX
COMBINATIONS = [
    pytest.param(name, transform, engine, id=f"{name}-{transform}-{engine}")
    for name in CASES
    for engine, transforms in ENGINES.items()
    for transform in transforms
    if name in DIFFERENTIABLE or transform not in OF_DERIVATIVES
    if (transform, engine) == ("plain", "auto")
    or sample([f"{name} {transform} {engine}"], one_of=8)
]


@pytest.mark.parametrize(("name", "transform", "engine"), COMBINATIONS)
def test_agrees_with_both_oracles(name, transform, engine):
    case = CASES[name]
    with onescan.engine(engine):
        result = TRANSFORMS[transform](onescan.scan, case)
    assert_same(result, by_jax(transform, case), rounding=case.rounding)
    assert_same(
        result,
        by_reference(transform, case),
        rounding=case.rounding,
        weak_types=transform in ("plain", "jit"),
    )


def test_the_table_holds_what_every_file_says():
    entered = {case.make.__module__ for case in CASES.values()}
    assert entered == {file.__name__ for file in FILES}
    assert len(CASES) >= 40


@pytest.mark.parametrize("oracle", [by_jax, by_reference])
def test_a_wrong_loop_is_seen(oracle):
    """The comparison fails when one number of one leaf is wrong by a little."""
    case = CASES["gru"]
    right = oracle("plain", case)

    def wrong_scan(*args, **kwargs):
        carry, ys = onescan.scan(*args, **kwargs)
        return carry, ys.at[3, 1, 2].multiply(1 + 1e-3)

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same(TRANSFORMS["plain"](wrong_scan, case), right)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (jnp.int32(1), jnp.int32(2), "Arrays are not equal"),
        (jax.random.key(1), jax.random.key(2), "Arrays are not equal"),
        (jnp.int32(1), jnp.float32(1), "types of  differ"),
        (jnp.float32(1), jnp.asarray(1.0), "types of  differ"),
        ([jnp.ones(3)], [jnp.ones((3, 1))], r"types of \[0\] differ"),
        ((jnp.ones(3),), [jnp.ones(3)], "containers differ"),
        (jnp.float32(jnp.nan), jnp.float32(1), "nan"),
        (jnp.array([1e-3, 1e3]), jnp.array([1e-3, 1.001e3]), "Not equal to tolerance"),
        (jnp.bfloat16(1), jnp.bfloat16(1.05), "Not equal to tolerance"),
        (jnp.float16(1), jnp.float16(1.006), "Not equal to tolerance"),
    ],
)
def test_the_comparison_can_fail(actual, expected, message):
    with pytest.raises(AssertionError, match=message):
        assert_same(actual, expected)
