"""Random combinations of options, against the plain loop, on both engines."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from long_cases import arguments, as_plain_loop, body, far, loss, slopes
from sampling import examples

import onescan
from onescan.long import loop


@pytest.fixture(autouse=True, scope="module")
def short_chunks():
    """Loops of a few steps have several chunks, one of them shorter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "chunk_length", lambda *_: 5)
        yield


class Counter:
    """A bar that only counts."""

    def __init__(self):
        self.n, self.postfix = 0, {}

    def update(self, n):
        self.n += n

    def set_postfix(self, values):
        self.postfix = values


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "checkpoint": st.sampled_from([1, 3, "sqrt", "log", "400B"]),
        "until": st.just(far),
        "where": st.integers(0, 99),
        "check": st.just("finite"),
        "progress": st.just(True),
        "reverse": st.booleans(),
    },
)


def run_with(chosen, steps):
    """The options as given to scan, those as given to the oracle, and the bar."""
    options, bar = dict(chosen), None
    oracle = {k: v for k, v in options.items() if k in ("until", "reverse")}
    if "where" in options:
        mask = np.random.default_rng(options["where"]).random(steps) < 0.7
        options["where"] = oracle["where"] = mask
    if "progress" in options:
        bar = options["progress"] = Counter()
        options["metrics"] = lambda carry, y: {"n": carry.count, "e": y["energy"]}
    return options, oracle, bar


def compiled(count):
    """So many examples; each compiles for seconds, so none is made simpler."""
    return settings(examples(count), phases=[Phase.generate])


LENGTHS = st.sampled_from([1, 7, 13])  # few, to compile the oracles only once
ENGINES = st.sampled_from(["xla", "auto"])


def assert_close(got, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
        got,
        expected,
    )


@compiled(8)
@given(OPTIONS, LENGTHS, st.integers(0, 9), ENGINES)
def test_results_and_gradients(chosen, steps, seed, engine):
    options, oracle, bar = run_with(chosen, steps)
    init, xs = arguments(steps, seed)

    def value(place, push):
        start, inputs = init._replace(place=place), {**xs, "push": push}
        results = onescan.scan(body, start, inputs, **options)
        return loss(*results[:2]), results

    with onescan.engine(engine):
        gradient = jax.jit(jax.grad(value, (0, 1), has_aux=True))
        got, results = gradient(init.place, xs["push"])
    carry, ys, taken, active = as_plain_loop(init, xs, **oracle)
    assert_same(results[0], carry, rounding=64, weak_types=False)
    assert_same(results[1], ys, rounding=64, weak_types=False)
    reverse = options.get("reverse", False)
    assert_close(got, slopes(init, xs, active, reverse)[0])
    if "until" in options:
        assert results[2] == taken
    if bar is not None:
        jax.effects_barrier()
        assert bar.n == taken
        assert set(bar.postfix) == {"n", "e"}


@compiled(3)
@given(OPTIONS, LENGTHS, ENGINES)
def test_batches_and_forward_mode(chosen, steps, engine):
    options, oracle, bar = run_with(chosen, steps)
    problems = [arguments(steps, seed) for seed in range(3)]
    inits, xs = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems)

    def run(init, xs):
        def value(push):
            return onescan.scan(body, init, {**xs, "push": push}, **options)

        results, moved = jax.jvp(value, (xs["push"],), (jnp.ones(steps),))
        return results, moved[0].place

    with onescan.engine(engine):
        results, along = jax.jit(jax.vmap(run))(inits, xs)
    most = 0
    for i, (init, x) in enumerate(problems):
        carry, ys, taken, active = as_plain_loop(init, x, **oracle)
        got = jax.tree.map(lambda leaf: leaf[i], results)
        assert_same(got[0], carry, rounding=64, weak_types=False)
        assert_same(got[1], ys, rounding=64, weak_types=False)
        assert_close(
            along[i], slopes(init, x, active, options.get("reverse", False))[1]
        )
        if "until" in options:
            assert got[2] == taken
        most = max(most, taken)
    if bar is not None:
        jax.effects_barrier()
        assert bar.n == most
