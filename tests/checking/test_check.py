"""Check mode sees a wrong result, and only a wrong result."""

from __future__ import annotations

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import onescan
from onescan import switches


def logistic(c, x):
    c = 3.9 * c * (1 - c) + x
    return c, c


def chaotic(start=0.3, steps=200):
    return lax.scan(logistic, start, jnp.zeros(steps, jnp.result_type(start)))


def tame(start=1.0, steps=20):
    return lax.scan(lambda c, x: (0.9 * c + x, (c, c > 2)), start, jnp.ones(steps))


@pytest.fixture(autouse=True)
def checked():
    onescan.clear_report()
    jax.clear_caches()
    with switches.using(installed=True, check=True):
        yield
    jax.clear_caches()


def run(f, *args):
    return jax.block_until_ready(jax.jit(f)(*args))


def broken_at(i, index, change):
    """An engine whose result leaf `i` is changed at one element."""

    def broken(results):
        results[i] = results[i].at[index].apply(change)
        return results

    return broken


def test_a_right_engine_passes_and_gives_its_results(monkeypatch):
    taken = fakes.use_engine(monkeypatch)
    carry, ys = run(chaotic)
    with onescan.engine("xla"):
        stock_carry, stock_ys = run(chaotic)
    assert len(taken) == 1
    np.testing.assert_array_equal(carry, stock_carry)
    np.testing.assert_array_equal(ys, stock_ys)
    assert onescan.report().rows[0].engine == "native"


def test_the_message_names_loop_leaf_element_values_and_allowance(monkeypatch):
    fakes.use_engine(monkeypatch, broken_at(1, 2, lambda y: y + 1))
    line = logistic.__code__.co_firstlineno
    with pytest.raises(
        jax.errors.JaxRuntimeError,
        match=rf"CheckError: logistic \(.*test_check\.py:{line}\): the native engine "
        r"and XLA disagree beyond rounding in ys 0 at \[2\]: 1\.95\d+ against XLA's "
        r"0\.95\d+, where rounding explains a difference of \d\.\d+e-05\.",
    ):
        run(chaotic)


@pytest.mark.parametrize(
    ("program", "leaf", "index", "name"),
    [
        (tame, 0, (), r"carry 0 at \[\]"),
        (tame, 1, (7,), r"ys 0 at \[7\]"),
        (tame, 2, (19,), r"ys 1 at \[19\]"),
    ],
)
def test_every_leaf_is_looked_at(monkeypatch, program, leaf, index, name):
    def change(v):
        return ~v if v.dtype == bool else v * 1.01

    fakes.use_engine(monkeypatch, broken_at(leaf, index, change))
    with pytest.raises(jax.errors.JaxRuntimeError, match=name):
        run(program)


def test_all_leaves_that_disagree_are_named(monkeypatch):
    fakes.use_engine(monkeypatch, lambda r: [r[0] + 1, r[1] + 1, r[2]])
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"carry 0.* So do ys 0\."):
        run(tame)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_rounding_is_not_a_difference(monkeypatch, dtype):
    with jax.enable_x64(dtype == "float64"):
        eps = float(jnp.finfo(dtype).eps)
        fakes.use_engine(
            monkeypatch, lambda r: [(v * (1 + eps)).astype(v.dtype) for v in r]
        )
        run(chaotic, jnp.array(0.3, dtype))


def test_chaos_excuses_late_steps_but_not_early_ones(monkeypatch):
    fakes.use_engine(monkeypatch, broken_at(1, 190, lambda y: y * 0.9))
    run(chaotic)
    jax.clear_caches()
    fakes.use_engine(monkeypatch, broken_at(1, 5, lambda y: y * 0.9))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ys 0 at \[5\]"):
        run(chaotic)


def test_reverse_loops_begin_at_the_end(monkeypatch):
    def reverse(start):
        return lax.scan(logistic, start, jnp.zeros(200), reverse=True)

    fakes.use_engine(monkeypatch, broken_at(1, 5, lambda y: y * 0.9))
    run(reverse, 0.3)
    jax.clear_caches()
    fakes.use_engine(monkeypatch, broken_at(1, 195, lambda y: y * 0.9))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ys 0 at \[195\]"):
        run(reverse, 0.3)


def test_cancellation_inside_the_body_is_rounding(monkeypatch):
    def cancel(c, x):
        y = (x * 1e6 + 1.0) - x * 1e6  # every digit is rounding
        return c, y

    fakes.use_engine(monkeypatch, lambda r: [*r[:-1], r[-1] + 0.06])
    run(lambda: lax.scan(cancel, 0.0, jnp.linspace(1.0, 2.0, 50)))


def test_integers_bools_and_keys_are_compared_exactly(monkeypatch):
    def body(carry, x):
        key, n = carry
        key, _ = jax.random.split(key)
        return (key, n * 3 + x), n > 100

    def program():
        init = (jax.random.key(0), jnp.uint32(1))
        (key, n), ys = lax.scan(body, init, jnp.arange(9, dtype=jnp.uint32))
        return jax.random.key_data(key), n, ys

    fakes.use_engine(monkeypatch)
    run(program)
    for leaf, change, name in [
        (1, lambda n: n + 1, r"carry 1 at \[\]"),
        (2, lambda y: ~y, r"ys 0 at \[0\]"),
        (0, None, r"carry 0 at \[0\]"),
    ]:
        jax.clear_caches()

        def wrong(r, leaf=leaf, change=change):
            if change is None:
                r[leaf] = jax.random.fold_in(r[leaf], 1)
            elif leaf == 2:
                r[leaf] = r[leaf].at[0].apply(change)
            else:
                r[leaf] = change(r[leaf])
            return r

        fakes.use_engine(monkeypatch, wrong)
        with pytest.raises(jax.errors.JaxRuntimeError, match=name):
            run(program)


def test_an_integer_that_rounding_flips_is_excused(monkeypatch):
    def spikes(c, x):
        c, _ = logistic(c, x)
        return c, c > 0.5

    def program():
        return lax.scan(spikes, 0.3, jnp.zeros(200))

    fakes.use_engine(monkeypatch, broken_at(1, 190, jnp.logical_not))
    run(program)
    jax.clear_caches()
    fakes.use_engine(monkeypatch, broken_at(1, 4, jnp.logical_not))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ys 0 at \[4\]"):
        run(program)


def test_nan_and_infinity_equal_themselves(monkeypatch):
    def program():
        return lax.scan(lambda c, x: (c + x, c / x), 0.0, jnp.array([0.0, jnp.inf, 1]))

    fakes.use_engine(monkeypatch)
    run(program)
    jax.clear_caches()
    fakes.use_engine(monkeypatch, broken_at(1, 2, lambda y: y * jnp.nan))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ys 0 at \[2\]: nan against"):
        run(program)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.grad(lambda a: f(a)[1][0].sum()),
        lambda f: jax.vmap(f),
        lambda f: lambda a: lax.map(f, a),
        lambda f: lambda a: lax.cond(a.sum() > 0, f, f, a),
        jax.checkpoint,
        lambda f: lambda a: jax.jvp(f, (a,), (a,)),
    ],
    ids=["grad", "vmap", "map", "cond", "checkpoint", "jvp"],
)
def test_under_transformations(monkeypatch, transform):
    start = jnp.linspace(0.1, 1.0, 3)
    program = transform(tame)
    fakes.use_engine(monkeypatch)
    run(program, start)
    jax.clear_caches()
    fakes.use_engine(monkeypatch, lambda r: [v + v.dtype.type(1) for v in r])
    with pytest.raises(jax.errors.JaxRuntimeError, match="disagree beyond rounding"):
        run(program, start)


def test_loops_without_results_or_steps(monkeypatch):
    taken = fakes.use_engine(monkeypatch)
    run(lambda: lax.scan(logistic, 0.3, jnp.zeros(0)))
    run(lambda: lax.scan(lambda c, x: (c, None), (), None, length=3))
    assert taken


def test_stock_loops_of_the_comparison_are_not_reused_for_ours(monkeypatch):
    def inner(c, x):
        return jnp.sin(c) + x, None

    def outer(c, xs):
        return lax.scan(inner, c, xs)

    def program(xss):
        c, _ = lax.scan(outer, jnp.float32(0.5), xss)
        return lax.scan(inner, c, xss[0])

    taken = fakes.use_engine(monkeypatch)
    run(program, jnp.ones((2, 3)))
    assert [loop.length for loop in taken] == [2, 3]


def test_a_loop_of_64_bits_in_a_program_of_32(monkeypatch):
    def program():
        with jax.enable_x64(True):
            start, xs = jnp.float64(0.3), jnp.zeros(200, jnp.float64)
            return lax.scan(logistic, start, xs)[1].astype(jnp.float32)

    fakes.use_engine(monkeypatch)
    run(program)
    jax.clear_caches()

    def broken(results):
        with jax.enable_x64(True):
            return [results[0], results[1].at[2].add(1e-6)]

    fakes.use_engine(monkeypatch, broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ys 0 at \[2\]"):
        run(program)


def test_complex_numbers(monkeypatch):
    def program():
        return lax.scan(lambda c, x: (c * x, c), 1 + 1j, jnp.full(9, 1j))

    fakes.use_engine(monkeypatch)
    run(program)
    jax.clear_caches()
    fakes.use_engine(monkeypatch, lambda r: [jnp.conj(v) for v in r])
    with pytest.raises(jax.errors.JaxRuntimeError, match="against XLA's"):
        run(program)


def test_a_body_of_calls_is_seen_through(monkeypatch):
    @jax.jit
    def step(c, x):
        return jax.checkpoint(logistic)(c, jax.nn.relu(x))

    fakes.use_engine(monkeypatch, broken_at(1, 190, lambda y: y * 0.9))
    run(lambda: lax.scan(step, 0.3, jnp.zeros(200)))
