"""While loops of Equinox and Diffrax under vmap: each lane ends by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_same, run
from equinox.internal._loop.common import common_rewrite
from jax import lax

import onescan
from onescan import switches


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    onescan.clear_report()
    with switches.using(installed=True):
        yield


def _carry(most: int | None, buffers: Any = None) -> Any:
    """All that Equinox's loop carries, its counter and flags included."""

    def f(n: Any) -> Any:
        start = (n, jnp.float32(0), jnp.zeros(3))
        goes_on = lambda s: s[0] > 0
        body = lambda s: (s[0] - 1, s[1] * 0.5 + s[0], s[2].at[s[0] % 3].set(s[1]))
        cond, body, start, _ = common_rewrite(
            goes_on, body, start, most, buffers, makes_false_steps=False
        )
        return lax.while_loop(cond, body, start)

    return f


TRIPS = jnp.array([3, 0, 7, 1, 1, 5, 2, 0, 4, 6, 3, 2, 9, 1, 0, 2, 8])


@pytest.mark.parametrize(
    ("most", "trips"),
    [(None, TRIPS), (20, TRIPS), (4, TRIPS), (20, TRIPS * 0), (0, TRIPS)],
    ids=("no bound", "bound", "bound that is met", "no rounds", "bound of none"),
)
def test_counters_and_flags_are_those_of_the_whole_batch(most: Any, trips: Any) -> None:
    f = jax.vmap(_carry(most))
    native = run("native", f, trips)
    (row,) = onescan.report().rows
    assert "lanewise" in row.passes
    assert row.notes == ("each lane goes on as long as its own condition says",)
    assert_same(native, run("xla", f, trips))


def test_constants_of_a_body() -> None:
    """Arrays that NumPy made stand in the body of a loop."""
    table = np.array([0.5, 0.25], np.float32)

    def f(n: Any) -> Any:
        body = lambda s: (s[0] - np.int32(1), s[1] * table + np.bool_(True))
        start = (n, jnp.zeros(2))
        return eqxi.while_loop(lambda s: s[0] > 0, body, start, kind="lax")

    native = run("native", jax.vmap(f), TRIPS)
    assert "lanewise" in onescan.report()[0].passes
    assert_same(native, run("xla", jax.vmap(f), TRIPS))


def test_batches_of_batches() -> None:
    f = jax.vmap(jax.vmap(_carry(6)))
    trips = TRIPS[:16].reshape(2, 8)
    native = run("native", f, trips)
    assert "lanewise" in onescan.report()[0].passes
    assert_same(native, run("xla", f, trips))


def test_what_is_shared_and_more_than_a_counter_stays() -> None:
    """A sum over the batch that all lanes see is no counter: all must go on."""

    def f(n: Any) -> Any:
        goes_on = lambda s: eqxi.unvmap_any(s[0] > 0)
        body = lambda s: (s[0] - 1, s[1] + eqxi.unvmap_max(s[0]))
        return lax.while_loop(goes_on, body, (n, jnp.int32(0)))

    native = run("native", jax.vmap(f), TRIPS)
    assert "lanewise" not in onescan.report()[0].passes
    assert_same(native, run("xla", jax.vmap(f), TRIPS))


def test_others_who_ask_a_batch_are_told_of_all_of_it() -> None:
    def f(n: Any) -> Any:
        body = lambda s: (s[0] - 1, s[1] + eqxi.unvmap_any(s[0] > 5))
        return lax.while_loop(lambda s: s[0] > 0, body, (n, jnp.int32(0)))

    native = run("native", jax.vmap(f), TRIPS)
    assert_same(native, run("xla", jax.vmap(f), TRIPS))


def test_answers_that_differ_from_tile_to_tile_are_no_results() -> None:
    """What a tile was told must not become a result that all lanes share."""
    from onescan.passes import equinox

    def f(x: Any) -> Any:
        step = lambda c, x: (c + eqxi.unvmap_any(x > 0.5), c)
        return onescan.scan(step, jnp.int32(0), x)

    xs = jnp.linspace(0, 1, 40).reshape(40, 1) * jnp.ones((1, 3))
    expected = run("xla", jax.vmap(f), xs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equinox, "_skips_work", lambda eqn: "unvmap" in str(eqn))
        assert_same(run("native", jax.vmap(f), xs), expected)


@pytest.mark.parametrize("save", ["t1", "ts"])
def test_diffrax(save: str) -> None:
    dfx = pytest.importorskip("diffrax")
    times = {"t1": dfx.SaveAt(t1=True), "ts": dfx.SaveAt(ts=jnp.linspace(0, 1, 4))}

    def solve(mu: Any) -> Any:
        field = lambda t, y, mu: jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])
        found = dfx.diffeqsolve(
            dfx.ODETerm(field),
            dfx.Tsit5(),
            0.0,
            1.0,
            0.1,
            jnp.array([1.0, 0.5]),
            args=mu,
            saveat=times[save],
            stepsize_controller=dfx.PIDController(rtol=1e-3, atol=1e-5),
            throw=False,
        )
        return found.ys, found.stats["num_steps"]

    with jax.enable_x64(True):  # in float32 the error of the first step is rounding
        mu = jnp.linspace(0.0, 40.0, 24)
        f = jax.vmap(solve)
        with onescan.engine("auto"):
            ys, steps = jax.jit(lambda mu: f(mu))(mu)
        rows = onescan.report().rows
        assert {row.engine for row in rows} == {"native"}
        assert "lanewise" in rows[-1].passes
        with onescan.engine("xla"):
            expected, expected_steps = jax.jit(lambda mu: f(mu))(mu)
        assert_same(steps, expected_steps)
        assert int(steps.max()) > int(steps.min())
        np.testing.assert_allclose(ys, expected, rtol=1e-5)
