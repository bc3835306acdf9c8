"""Light work on xs in front of a loop, which is done in the loop."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing import by_both as run
from sampling import examples

import onescan
from onescan import switches

STEPS, LANES = 6, 16
A, B = (
    jax.random.normal(jax.random.key(k), (STEPS, LANES), dtype=jnp.float32)
    for k in (0, 1)
)
NOTE = (
    r"computed (\S+|1 of the xs) in the loop, so [\d,]+ bytes a step wait in no memory"
)


def step(c, x):
    c = jnp.sin(c) + x
    return c, c * 2


def test_work_in_front_of_a_loop_is_done_in_it():
    text, notes = run(lambda scan, a: scan(step, jnp.zeros(LANES), 2 * a + 1), A)
    (note,) = notes
    assert re.fullmatch(NOTE, note)
    assert "multiply" not in text


def test_work_on_what_the_loop_reads_anyway():
    def program(scan, a, b):
        def both(c, x):
            return step(c, x[0] + x[1] * x[2])

        return scan(both, jnp.zeros(LANES), (a, a * b, b))

    text, notes = run(program, A, B)
    (note,) = notes
    assert re.fullmatch(NOTE, note)
    assert "multiply" not in text


@pytest.mark.parametrize("small", [2.0, A[0], A[0, 0], A[:, :1]])
def test_an_x_made_from_less_is_no_array(small):
    """One number for all, or a row for each step, such as cotangents of sums are."""
    large = lambda a: jnp.broadcast_to(a, (STEPS, LANES))
    _, notes = run(lambda scan, a: scan(step, jnp.zeros(LANES), large(a)), small)
    (note,) = notes
    assert re.fullmatch(NOTE, note)


def test_cotangents_of_a_sum_are_no_array():
    def program(scan, c):
        return jax.grad(lambda c: scan(step, c, jnp.float32(A[:, 0]))[1].sum())(c)

    _, notes = run(program, A[0])
    assert any(re.fullmatch(NOTE, note) for note in notes)


def test_an_x_that_something_else_reads_is_still_right():
    def program(scan, a, b):
        x = a * b - a
        return scan(step, jnp.zeros(LANES), x), x, jnp.sum(x)

    run(program, A, B)


def test_more_to_read_is_not_less_work():
    _, notes = run(lambda scan, a, b: scan(step, jnp.zeros(LANES), a * b), A, B)
    assert notes == []


def test_dear_work_stays_in_front():
    _, notes = run(lambda scan, a: scan(step, jnp.zeros(LANES), jnp.exp(a)), A)
    assert notes == []


def test_single_numbers_stay_in_front():
    _, notes = run(lambda scan, a: scan(step, jnp.float32(0), 2 * a), A[:, 0])
    assert notes == []


@pytest.mark.parametrize(
    "make",
    [
        lambda a, w: a * w,  # one row for all steps
        lambda a, w: a * jnp.sum(w),
        lambda a, w: a * w[None, :] + w[0],
        lambda a, w: jnp.broadcast_to(a[:, :1], a.shape) * w,
        lambda a, w: (a * 2).reshape(STEPS, 4, 4).reshape(STEPS, LANES),
        lambda a, w: jnp.maximum(a, 0) - jnp.minimum(-a, w),
        lambda a, w: (a.astype(jnp.int32) * 3 - 1).astype(jnp.float32),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_ways_to_make_xs(make, reverse):
    def program(scan, a, w):
        return scan(step, jnp.zeros(LANES), make(a, w), reverse=reverse)

    run(program, A, B[0])


OPERATIONS = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum]


@examples(6)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 9)), max_size=8
    ),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
)
def test_random_work_in_front(makers, chosen):
    def program(scan, a, b):
        values = [a, b, a[::-1]]
        for which, i, j in makers:
            operands = values[i % len(values)], values[j % len(values)]
            values.append(OPERATIONS[which](*operands))
        xs = [values[-1 - k % len(values)] for k in chosen]
        return scan(lambda c, x: step(c, sum(x)), jnp.zeros(LANES), xs), values[-1]

    run(program, A, B)


def test_the_gradient_of_a_loss_reads_what_the_loop_left():
    """The cotangent of each h is 2 h, which nobody writes down."""

    def program(scan, a):
        def loss(a):
            return jnp.sum(scan(step, jnp.zeros(LANES), a)[1] ** 2)

        return jax.grad(loss)(a)

    _, notes = run(program, A)
    assert any(note.startswith("computed") for note in notes)


def test_batches_and_second_derivatives():
    def program(scan, a):
        def loss(a):
            return jnp.sum(scan(step, jnp.zeros(LANES), a * a + a)[0] ** 2)

        return jax.vmap(jax.grad(loss))(jnp.stack([a, 2 * a]))

    run(program, A)


def test_results_under_check():
    with switches.using(check=True):
        run(lambda scan, a: scan(step, jnp.zeros(LANES), 2 * a + 1), A)


def test_the_program_is_the_same_every_time():
    """JAX finds programs that were compiled before by their text."""

    def program(a, *rows):
        x = a
        for row in rows:
            x = x * row
        return onescan.scan(step, jnp.zeros(LANES), x)

    def text():
        jax.clear_caches()
        return jax.jit(program).lower(A, *B[:5]).as_text()

    first = text()
    assert any(re.fullmatch(NOTE, note) for note in onescan.report().rows[-1].notes)
    assert all(text() == first for _ in range(4))
