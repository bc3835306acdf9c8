"""Slices of arrays as xs, read in place, and xs that only count."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from passing import by_both as run

import onescan
from onescan.targets.cpu import current

STEPS = 9


def values(*shape, key=0):
    return jax.random.normal(jax.random.key(key), shape, dtype=jnp.float32)


def advantages(scan, rewards, values, reverse=True):
    def step(a, x):
        reward, value, following = x
        a = reward + 0.9 * following - value + 0.8 * a
        return a, a

    xs = rewards, values[:-1], values[1:]
    return scan(step, jnp.zeros(rewards.shape[1:]), xs, reverse=reverse)


@pytest.mark.parametrize(
    ("shape", "reverse"),
    [((), True), ((1,), False), ((3,), True), ((64,), True), ((2, 17), False)],
)
def test_shifted_windows(shape, reverse):
    def program(scan, *args):
        return advantages(scan, *args, reverse=reverse)

    text, notes = run(program, values(STEPS, *shape), values(STEPS + 1, *shape, key=1))
    assert " slice(" not in text
    assert notes == ["read 2 xs in place, as parts of other arrays"]


@pytest.mark.parametrize(
    ("shape", "reverse"), [((), False), ((3,), True), ((64,), False), ((2, 17), True)]
)
def test_a_window_that_is_filled_up(shape, reverse):
    """The next values as users write them: all but the first, and one for the end."""

    def program(scan, rewards, values, last):
        def step(a, x):
            reward, value, following = x
            a = reward + 0.9 * following - value + 0.8 * a
            return a, a

        following = jnp.concatenate([values[1:], last[None]])
        xs = rewards, values, following
        return scan(step, jnp.zeros(shape), xs, reverse=reverse)

    args = (*values(2, STEPS, *shape), values(*shape, key=1))
    text, notes = run(program, *args)
    assert "concatenate" not in text
    assert notes == ["read 1 x in place, as parts of other arrays"]


@pytest.mark.parametrize("cut", [1, 4, STEPS - 1])
def test_two_arrays_one_after_the_other(cut):
    def program(scan, a, b):
        xs = jnp.concatenate([a[2 : 2 + cut], b[3 : 3 + STEPS - cut]])
        return scan(lambda c, x: (0.5 * c + x, c * x), jnp.zeros(16), xs)

    text, _ = run(program, values(STEPS + 2, 16), values(STEPS + 3, 16, key=1))
    assert "concatenate" not in text


def test_three_arrays_one_after_the_other_are_copied():
    def program(scan, a):
        xs = jnp.concatenate([a[:2], a[5:], a[2:5]])
        return scan(lambda c, x: (0.5 * c + x, c * x), jnp.zeros(16), xs)

    _, notes = run(program, values(STEPS, 16))
    assert notes == []


def test_a_slice_of_a_slice():
    def program(scan, v):
        return advantages(scan, v[2 : 2 + STEPS], v[3:][1 : 2 + STEPS])

    text, _ = run(program, values(STEPS + 6, 16))
    assert " slice(" not in text


def test_slices_that_are_not_along_time_are_copied():
    def program(scan, v):
        return scan(lambda c, x: (c + x, c), jnp.zeros(16), v[:, 1:17])

    _, notes = run(program, values(STEPS, 18))
    assert notes == []


def test_slices_with_strides_are_copied():
    def program(scan, v):
        return scan(lambda c, x: (c + x, c), jnp.zeros(16), v[::2])

    _, notes = run(program, values(2 * STEPS, 16))
    assert notes == []


def test_a_slice_that_is_also_a_result():
    def program(scan, v):
        x = v[1:]
        return scan(lambda c, x: (c + x, c), jnp.zeros(16), x), x

    run(program, values(STEPS, 16))


def test_windows_in_front_of_time():
    """With batches in front the windows are not slices along time alone."""

    def program(scan, rewards, values):
        return jax.vmap(lambda r, v: advantages(scan, r, v))(rewards, values)

    run(program, values(4, STEPS, 3), values(4, STEPS + 1, 3, key=1))


COUNTS = ["int32", "uint32", "float32"]


@pytest.mark.parametrize("dtype", COUNTS)
@pytest.mark.parametrize("reverse", [False, True])
def test_counts_are_not_read(dtype, reverse):
    def program(scan, c):
        def step(c, i):
            return 0.5 * c + i, c * i

        return scan(step, c, jnp.arange(STEPS, dtype=dtype), reverse=reverse)

    text, notes = run(program, values(16))
    assert "iota" not in text
    assert notes == ["took 1 x that counts steps from the loop itself"]


def test_a_long_kernel_is_not_made_anew_to_count(monkeypatch):
    monkeypatch.setattr(type(current()), "is_long", lambda *_: True)

    def program(scan, c):
        return scan(lambda c, i: (0.5 * c + i, c), c, jnp.arange(STEPS))

    text, notes = run(program, values(16))
    assert "iota" in text
    assert notes == []


def test_a_loop_that_only_counts():
    run(lambda scan: scan(lambda c, i: (c + i, c * i), 0, jnp.arange(STEPS)))


def test_counts_that_begin_elsewhere_are_right():
    def program(scan, c):
        return scan(lambda c, i: (0.5 * c + i, c), c, jnp.arange(3, 3 + STEPS))

    run(program, values(16))


def test_a_count_that_is_also_a_result():
    def program(scan, c):
        i = jnp.arange(STEPS)
        return scan(lambda c, i: (0.5 * c + i, i), c, i), i

    run(program, values(16))


def test_counts_and_windows_over_chunks_of_time():
    """With little memory the loop runs in chunks, whose xs are parts of the whole."""
    weights = values(16, 256) / 100

    def program(scan, v):
        def step(c, x):
            i, a, b = x
            return 0.5 * c + jnp.sum(a @ weights) * i - jnp.sum(b), c

        return scan(step, jnp.float32(0), (jnp.arange(64), v[:-1], v[1:]))

    with onescan.options(memory=60_000):
        run(program, values(65, 2, 16), tolerance=1e-4)
