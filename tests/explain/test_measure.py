"""Times that `explain(measure=True)` takes, and that it changes nothing by that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan
from onescan.explain import measure
from onescan.explain.decide import decide

W = jnp.full((64, 64), 0.01)


def recurrent(h, x):
    return jnp.tanh(h + x @ W), h.sum()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(measure, "ENOUGH", 0.0)


def test_every_way_is_measured():
    onescan.clear_report()
    told = onescan.explain(
        recurrent, jnp.zeros((8, 64)), jnp.ones((20, 8, 64)), measure=True
    )
    ways = dict(told.times.by_way)
    assert list(ways) == ["by XLA", "as one kernel", "as it runs"]
    assert all(seconds > 0 for seconds in ways.values())
    assert told.times.gain == ways["by XLA"] / ways["as it runs"]
    assert "a step takes by XLA " in " ".join(str(told).split())
    assert "Measured here" in told._repr_html_()
    assert told.to_dict()["run"]["seconds_per_step"] == ways
    assert onescan.report().rows == ()


def test_every_way_gives_what_the_loop_gives():
    """A key in the carry, with loops of the passes' own around the kernel."""

    def walk(carry, x):
        key, at = carry
        key, sub = jax.random.split(key)
        return (key, at + x * jax.random.normal(sub)), at

    init, xs = (jax.random.key(1), 0.0), jnp.linspace(0, 1, 100)
    told = onescan.explain(walk, init, xs)
    decision = decide(told.loop, "cpu")
    assert decision.splits
    given = [jax.random.key_data(init[0]), jnp.float32(0), xs]
    (key, at), ys = jax.lax.scan(walk, init, xs)
    expected = [jax.random.key_data(key), at, ys]
    ways = measure._ways(decision)
    assert len(ways) == 3
    for way in ways.values():
        for got, wanted in zip(jax.jit(way)(*given), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_values_are_needed():
    types = jax.ShapeDtypeStruct((3,), jnp.float32)
    with pytest.raises(onescan.ScanValueError, match="init and xs have to be arrays"):
        onescan.explain(lambda c, x: (c + x, c), 0.0, types, measure=True)


def test_a_loop_that_xla_keeps():
    def rare(c, x):
        return c + jax.lax.reduce(x[None], 0.0, jnp.hypot, (0,)), c

    told = onescan.explain(rare, 1.0, jnp.ones(10), measure=True)
    assert next(iter(told.times.by_way))[0] == "by XLA"
    assert "as one kernel" not in dict(told.times.by_way)
