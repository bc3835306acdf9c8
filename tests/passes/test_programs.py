"""The passes inside whole programs: gradients, XLA's turn, chunks, the report."""

from __future__ import annotations

import sys
from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from passing import assert_same, loop_of, splits_of, stock_run
from sampling import WHOLE

import onescan
from onescan.loop import LeaveToXla
from onescan.lowering import pipeline
from onescan.passes import PASSES, XLA_PASSES, overtime, surround, worth
from onescan.passes.accumulate import accumulate
from onescan.passes.ahead import ahead
from onescan.passes.hoist import hoist
from onescan.passes.linear import linear
from onescan.passes.simplify import simplify
from onescan.passes.sink import sink

STEPS, BATCH, HIDDEN = 7, 3, 56  # heavy enough: 56 * 56 * 3 multiply-adds


def normal(key, *shape):
    return jax.random.normal(jax.random.key(key), shape, dtype=float)


def rnn(params, h, x):
    return jnp.tanh(x @ params["wx"] + h @ params["wh"] + params["b"])


def gru(params, h, x):
    from_x = x @ params["wx"] + params["b"]
    from_h = h @ params["wh"]
    xr, xz, xn = jnp.split(from_x, 3, axis=-1)
    hr, hz, hn = jnp.split(from_h, 3, axis=-1)
    r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
    return (1.0 - z) * jnp.tanh(xn + r * hn) + z * h


def lstm(params, state, x):
    h, c = jnp.split(state, 2, axis=-1)
    gates = x @ params["wx"] + h @ params["wh"] + params["b"]
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jnp.concatenate([jax.nn.sigmoid(o) * jnp.tanh(c), c], axis=-1)


CELLS = {rnn: (1, 1), gru: (3, 1), lstm: (4, 2)}  # gates, and parts of the state


def loss(cell, reverse, scan, params, h, xs):
    def step(h, x):
        h = cell(params, h, x)
        return h, h[..., :HIDDEN] @ params["out"]

    h, ys = scan(step, h, xs, reverse=reverse)
    return jnp.mean(ys**2) + jnp.sum(h)


def problem(cell):
    gates, parts = CELLS[cell]
    params = {
        "wx": 0.2 * normal(0, HIDDEN, gates * HIDDEN),
        "wh": 0.2 * normal(1, HIDDEN, gates * HIDDEN),
        "b": 0.1 * normal(2, gates * HIDDEN),
        "out": 0.2 * normal(3, HIDDEN, HIDDEN),
    }
    h = jnp.concatenate([normal(4, BATCH, HIDDEN)] * parts, axis=-1)
    return params, h, normal(5, STEPS, BATCH, HIDDEN)


def gradients(cell, reverse, scan, args):
    return jax.jit(jax.grad(partial(loss, cell, reverse, scan), (0, 1, 2)))(*args)


def assert_close(ours, stock, tolerance=1e-10):
    def compare(a, b):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = np.abs(b).max(initial=1e-300)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)

    jax.tree.map(compare, ours, stock)


def refuse(*_):
    raise LeaveToXla("the test wants XLA")


@pytest.fixture
def without_engine(monkeypatch):
    monkeypatch.setattr(pipeline, "planned", refuse)
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", list(CELLS))
def test_gradients_of_recurrent_networks_by_the_engine(cell, reverse):
    with jax.enable_x64(True):
        args = problem(cell)
        onescan.clear_report()
        ours = gradients(cell, reverse, onescan.scan, args)
        assert_close(ours, gradients(cell, reverse, lax.scan, args))
    forward, backward = onescan.report().rows
    assert forward.engine == backward.engine == "native"
    assert "hoist" in forward.passes
    assert {"accumulate", "sink"} <= set(backward.passes)


@pytest.mark.parametrize("cell", list(CELLS))
def test_gradients_of_recurrent_networks_by_xla(cell, without_engine):
    with jax.enable_x64(True):
        args = problem(cell)
        onescan.clear_report()
        ours = gradients(cell, False, onescan.scan, args)
        assert_close(ours, gradients(cell, False, lax.scan, args))
    forward, backward = onescan.report().rows
    assert forward.engine == backward.engine == "xla"
    assert "hoist" in forward.passes
    assert {"accumulate", "sink"} <= set(backward.passes)


def test_xla_keeps_products_that_are_large_in_every_step(without_engine):
    weights = normal(0, 256, 512)

    def step(h, x):
        return jnp.tanh(x @ weights + h), None

    def run(batch):
        onescan.clear_report()
        xs = normal(1, 2, batch, 256)
        jax.jit(lambda xs: onescan.scan(step, jnp.zeros((batch, 512)), xs))(xs)
        (row,) = onescan.report().rows
        return row.passes

    assert run(4) == ("hoist", "simplify")
    assert run(64) == ()


def test_loops_inside_a_loop_left_to_xla_keep_their_engine(monkeypatch):
    """Passes on the outer loop must not hide the inner one from the hook."""
    planned = pipeline.planned

    def only_inner(loop, *how):
        if "scan" in str(loop.body):
            raise LeaveToXla("the test wants XLA for the outer loop")
        return planned(loop, *how)

    monkeypatch.setattr(pipeline, "planned", only_inner)
    weights = normal(0, HIDDEN, 3 * HIDDEN)

    def outer(h, x):
        wide = x @ weights
        h, _ = onescan.scan(lambda c, y: (jnp.sin(c + y), None), h, wide)
        return h, h

    def whole(scan):
        return jax.jit(lambda h, xs: scan(outer, h, xs))(
            jnp.zeros(3 * HIDDEN), normal(1, STEPS, BATCH, HIDDEN)
        )

    onescan.clear_report()
    assert_close(whole(onescan.scan), whole(lax.scan), 1e-5)
    engines = {row.name: row.engine for row in onescan.report().rows}
    assert engines == {"outer": "xla", "<lambda>": "native"}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [2, 4, 5])  # of 10: with and without a remainder
def test_chunks_of_time(steps, reverse, monkeypatch):
    monkeypatch.setattr(surround, "FEWEST", 1)
    weights = normal(0, HIDDEN, HIDDEN)

    def step(carry, x):
        h, total = carry
        h = jnp.tanh(h + x @ weights)
        return (h, total + h.T @ x), h @ weights

    init = jnp.zeros((BATCH, HIDDEN)), jnp.ones((HIDDEN, HIDDEN))
    xs = normal(1, 10, BATCH, HIDDEN)
    loop, args = loop_of(step, init, xs, reverse=reverse)
    each = sum(split.extra for split in splits_of(loop, *PASSES))
    passed = surround.Passed.of(loop, PASSES, memory=steps * each)
    assert passed.pieces[0].loop.length == steps
    whole = passed.run_by([surround.stock(core) for core in passed.cores])
    ours, stock = jax.jit(whole)(*args), stock_run(loop, *args)
    assert_close(list(ours), list(stock), 1e-5)
    sizes = [
        prod(v.aval.shape) * v.aval.dtype.itemsize
        for v in _inside(jax.make_jaxpr(whole)(*args).jaxpr)
    ]
    assert max(sizes) <= max(prod(x.shape) * 4 for x in (*args, *stock))


def _inside(jaxpr):
    return [v for eqn in jaxpr.eqns for v in eqn.outvars]


def test_long_loops_stay_within_the_budget():
    def step(h, x):
        return jnp.tanh(h + x @ jnp.ones((32, 4096))), None

    loop, _ = loop_of(step, jnp.zeros(4096), jnp.zeros((20_000, 32)))
    splits = splits_of(loop, *PASSES)
    each = sum(split.extra for split in splits)
    assert each == 4096 * 4
    assert each * loop.length > surround.budget(loop)
    assert each * surround.chunk_of(loop, splits) <= surround.budget(loop)


@pytest.mark.parametrize("engine", ["native", "xla"])
def test_peak_memory_follows_the_budget(engine, request):
    """The products of all steps of a long loop take 32 MiB, and 2 MiB are allowed."""
    if engine == "xla":
        request.getfixturevalue("without_engine")
    weights, length, mebi = normal(0, 32, 4096), 2048, 1 << 20

    def step(h, x):
        return jnp.tanh(h + x @ weights), None

    def compiled(memory):
        def run(xs):
            return onescan.scan(step, jnp.zeros(4096), xs)[0]

        with onescan.options(memory=memory):
            return jax.jit(run).lower(jnp.zeros((length, 32))).compile()

    free, bounded = compiled(1 << 40), compiled(2 * mebi)
    peaks = [p.memory_analysis().temp_size_in_bytes for p in (free, bounded)]
    assert peaks[0] > 32 * mebi
    assert peaks[1] < 3 * mebi
    xs = normal(1, length, 32)
    assert_close(bounded(xs), free(xs), 1e-5)


def test_work_that_does_not_fit_stays_in_the_loop(monkeypatch):
    monkeypatch.setattr(surround, "budget", lambda *_: 0)
    args = problem(rnn)
    onescan.clear_report()
    ours = gradients(rnn, False, onescan.scan, args)
    assert_close(ours, gradients(rnn, False, lax.scan, args), 1e-5)
    for row in onescan.report().rows:
        assert "too much memory" in row.notes[-1] or row.reason
        assert set(row.passes) <= {"absorb", "simplify"}


@pytest.mark.parametrize("engine", ["native", "xla"])
def test_loops_inside_shard_map(engine, request):
    """The types of shards do not mix with those of the program around the loop."""
    if engine == "xla":
        request.getfixturevalue("without_engine")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    weights = normal(0, HIDDEN, HIDDEN)

    def step(h, x):
        h = jnp.tanh(x @ weights + h)
        return h, h @ weights

    def run(scan, xs):
        h = lax.pcast(jnp.zeros((BATCH, HIDDEN)), "i", to="varying")
        return scan(step, h, xs)[1]

    def whole(scan):
        spec = jax.P(None, "i")
        inner = partial(run, scan)
        inner = jax.shard_map(inner, mesh=mesh, in_specs=spec, out_specs=spec)
        return jax.jit(inner)(normal(1, STEPS, BATCH, HIDDEN))

    onescan.clear_report()
    assert_close(whole(onescan.scan), whole(lax.scan), 1e-5)
    (row,) = onescan.report().rows
    assert row.engine == engine
    assert {"hoist", "sink"} <= set(row.passes)


def test_a_loop_of_which_nothing_is_left():
    def step(total, x):
        return total + x.T @ x, None

    xs = normal(0, STEPS, BATCH, HIDDEN)
    init = jnp.zeros((HIDDEN, HIDDEN))
    ours = jax.jit(lambda xs: onescan.scan(step, init, xs))(xs)
    assert_close(ours, lax.scan(step, init, xs), 1e-5)


def test_the_report_says_what_was_done():
    weights = normal(0, HIDDEN, HIDDEN)

    def step(h, x):
        return jnp.tanh(x @ weights + h), None

    onescan.clear_report()
    h = jnp.zeros((BATCH, HIDDEN))
    jax.jit(lambda xs: onescan.scan(step, h, xs))(normal(1, STEPS, BATCH, HIDDEN))
    (row,) = onescan.report().rows
    note = row.notes[0]
    assert note.startswith("hoisted 1 matrix product (x @ weights, test_prog")
    assert note.endswith(f"over {STEPS} steps")
    assert onescan.report().to_dict()["loops"][0]["notes"] == [note]
    assert "hoisted" in str(onescan.report())


UNARY = [jnp.sin, jnp.tanh, jnp.negative, lambda v: v.T.T, lambda v: 0.5 * v]
BINARY = [jnp.add, jnp.multiply, jnp.subtract, lambda a, b: a @ b.T @ b]


def random_step(choices):
    """A body of matrices, made of choices: what it computes, carries and leaves."""

    def step(carry, x):
        h, first, second, line, most, logs, steady = carry
        pool = [h, x, jnp.eye(4) + 0.1 * steady]
        for unary, i, j, op in choices:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            pool.append(UNARY[op % 5](a) if unary else 0.3 * BINARY[op % 4](a, b))
        last = pool[3:]
        first = first + last[0].T @ x - last[0]
        second = second + last[1 % len(last)].T @ x
        line = jnp.tanh(last[-1]) * line + last[0]
        most = jnp.maximum(most, last[-1])
        logs = jnp.logaddexp(last[0], logs)
        h = jnp.tanh(last[-1] + h)
        carry = h, first, second, line, most, logs, steady
        return carry, (last[len(last) // 2], x @ x, line, x)

    return step


CHOICE = st.tuples(st.booleans(), *[st.integers(0, 20)] * 3)
EACH = {
    "simplify": (simplify,),
    "accumulate": (accumulate,),
    "reductions": (partial(accumulate, reductions=True),),
    "ahead": (ahead, hoist, simplify),
    "hoist": (hoist,),
    "sink": (sink,),
    "linear": (partial(linear, chunks=2),),
    "for a kernel": PASSES,
    "all": (*XLA_PASSES, partial(linear, chunks=3), simplify),
}


@pytest.mark.parametrize("name", EACH)
@settings(max_examples=6 if WHOLE else 3)
@given(choices=st.lists(CHOICE, min_size=1, max_size=6), reverse=st.booleans())
def test_passes_keep_the_meaning_of_random_loops(name, choices, reverse):
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        patch.setattr(worth, "HEAVY", 1)  # so that everything moves that can
        patch.setattr(worth, "HEAVY_SUM", 1)
        patch.setattr(worth, "PER_ELEMENT", 0)
        patch.setattr(overtime, "PER_RESULT", 0)
        patch.setattr(sys.modules["onescan.passes.ahead"], "PER_RESULT", 0)
        init = tuple(0.1 * normal(k, 4, 4) for k in range(7))
        loop, args = loop_of(
            random_step(choices), init, normal(9, 5, 4, 4), reverse=reverse, raw=True
        )
        splits = splits_of(loop, *EACH[name])
        assert splits or name in ("hoist", "sink")  # which depend on the choices
        if splits:
            assert_same(loop, splits, args, tolerance=1e-12)
