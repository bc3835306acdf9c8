"""The kinds of accumulators: which leave a loop, what they become, NaN and inf."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from passing import (
    assert_same,
    core_of,
    loop_of,
    notes_of,
    outside,
    shown,
    splits_of,
    stock_run,
)
from sampling import examples

import onescan
from onescan.loop import LeaveToXla
from onescan.lowering import pipeline
from onescan.passes import PASSES, XLA_PASSES
from onescan.passes.accumulate import accumulate
from onescan.passes.simplify import simplify
from onescan.passes.split import run

for_xla = partial(accumulate, reductions=True)


def collecting(combine):
    """A loop that combines what it computes into a second carry."""

    def step(carry, x):
        h, total = carry
        h = jnp.tanh(h + x)
        return (h, combine(total, h)), None

    return step


def test_logaddexp_becomes_one_logsumexp():
    init = jnp.zeros(64), jnp.full(64, -jnp.inf)
    xs = jnp.linspace(-1.0, 1.0, 5 * 64).reshape(5, 64)
    loop, args = loop_of(collecting(jnp.logaddexp), init, xs)
    splits = splits_of(loop, simplify, for_xla)
    assert shown(core_of(splits).body) == [
        "in  a:float32[64] b:float32[64]",
        "c:float32[64] = add a b",
        "d:float32[64] = tanh c",
        "out d d",
    ]
    around = outside(splits, args)
    assert around[1] == "d:float32[64] e:float32[5,64] = onescan_loop a c"
    assert sum(" = reduce_max " in line for line in around) == 1
    assert sum(" = reduce_sum " in line for line in around) == 1
    assert_same(loop, splits, args)
    assert notes_of(splits[-1]) == [
        "made 1 accumulator (combine(total, h), test_accumulators.py:0) "
        "a logaddexp over 5 steps"
    ]


def twice(total, h):
    return jnp.logaddexp(jnp.logaddexp(h * 3, total), h)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("combine", [lambda t, h: jnp.logaddexp(h, t), twice])
def test_logaddexp_on_either_side_and_in_a_row(combine, dtype, reverse):
    with jax.enable_x64(True):
        init = jnp.zeros((4, 16), dtype), jnp.ones((4, 16), dtype)
        xs = jnp.linspace(-1.0, 1.0, 7 * 64, dtype=dtype).reshape(7, 4, 16)
        loop, args = loop_of(collecting(combine), init, xs, reverse=reverse)
        splits = splits_of(loop, *XLA_PASSES)
        assert core_of(splits).num_carry == 1
        assert_same(loop, splits, args, 1e-6 if dtype == jnp.float32 else 1e-14)


SPECIAL = [0.0, -0.0, 1.5, -700.0, 3e38, -3e38, jnp.inf, -jnp.inf, jnp.nan]


@examples(10)
@given(
    st.sampled_from([jnp.logaddexp, jnp.maximum, jnp.minimum]),
    st.lists(st.sampled_from(SPECIAL), min_size=4, max_size=4),
)
def test_special_values_as_in_the_loop(combine, values):
    def step(total, x):
        return combine(total, x), None

    xs = jnp.tile(jnp.array(values[1:], jnp.float32)[:, None], (1, 1100))
    loop, args = loop_of(step, jnp.full(1100, values[0], jnp.float32), xs)
    splits = splits_of(loop, *XLA_PASSES)
    assert core_of(splits).num_carry == 0
    (ours,) = run(splits, lambda *args: [], args)
    (stock,) = stock_run(loop, *args)
    np.testing.assert_allclose(ours, stock, rtol=1e-6)


EXACT = {
    "and": (jnp.bitwise_and, jnp.int32),
    "or": (jnp.bitwise_or, jnp.uint8),
    "xor": (jnp.bitwise_xor, jnp.int32),
    "all": (jnp.logical_and, bool),
    "any": (jnp.logical_or, bool),
    "product of integers": (jnp.multiply, jnp.int32),
    "smallest integer": (jnp.minimum, jnp.int16),
    "largest of truths": (jnp.maximum, bool),
}


@pytest.mark.parametrize("kind", EXACT)
def test_exact_kinds(kind):
    combine, dtype = EXACT[kind]

    def step(total, x):
        return combine(total, x), None

    xs = jax.random.randint(
        jax.random.key(0), (9, 40, 30), 0, 2 if dtype is bool else 99
    )
    loop, args = loop_of(step, jnp.ones((40, 30), dtype), xs.astype(dtype))
    splits = splits_of(loop, *XLA_PASSES)
    assert core_of(splits).num_carry == 0
    assert_same(loop, splits, args, tolerance=0)


def max_read_elsewhere(carry, x):
    h, total = carry
    h = jnp.tanh(h + x)
    return (h, jnp.logaddexp(total, h)), jnp.maximum(total, h)


def logaddexp_of_itself(carry, x):
    h, total = carry
    return (jnp.tanh(h + x), jnp.logaddexp(total, total)), None


def without_the_answer_for_nan(carry, x):
    h, total = carry
    h = jnp.tanh(h + x)
    most = jnp.maximum(total, h)
    return (h, most + jnp.log1p(jnp.exp(-jnp.abs(total - h)))), None


def product_of_floats(carry, x):
    h, total = carry
    h = jnp.tanh(h + x)
    return (h, total * h), None


def two_kinds(carry, x):
    h, total = carry
    h = jnp.tanh(h + x)
    return (h, jnp.maximum(total + h, h)), None


@pytest.mark.parametrize(
    "step",
    [
        max_read_elsewhere,
        logaddexp_of_itself,
        without_the_answer_for_nan,
        product_of_floats,
        two_kinds,
    ],
)
def test_what_only_looks_like_an_accumulator_stays(step):
    loop, _ = loop_of(step, (jnp.zeros(2000), jnp.zeros(2000)), jnp.ones((5, 2000)))
    splits = splits_of(loop, simplify)
    assert for_xla(splits[-1].loop if splits else loop) is None


@pytest.mark.parametrize("combine", [jnp.add, jnp.maximum, jnp.logaddexp])
def test_a_kernel_keeps_accumulators_without_products(combine):
    init = jnp.zeros(4000), jnp.zeros(4000)
    loop, _ = loop_of(collecting(combine), init, jnp.ones((5, 4000)))
    assert splits_of(loop, *PASSES) == []


def test_a_program_that_xla_runs(monkeypatch):
    def refuse(*_):
        raise LeaveToXla("the test wants XLA")

    monkeypatch.setattr(pipeline, "planned", refuse)
    init = jnp.zeros(64), jnp.full(64, -jnp.inf)
    xs = jnp.linspace(-1.0, 1.0, 50 * 64).reshape(50, 64)
    onescan.clear_report()
    ours, stock = (
        jax.jit(lambda xs, scan=scan: scan(collecting(jnp.logaddexp), init, xs)[0])(xs)
        for scan in (onescan.scan, lax.scan)
    )
    np.testing.assert_allclose(ours[1], stock[1], rtol=1e-6)
    (row,) = onescan.report().rows
    assert "accumulate" in row.passes
    assert row.notes[0].endswith("a logaddexp over 50 steps")
