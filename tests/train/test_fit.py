"""`onescan.train.fit` against the loop it stands for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import onescan
from onescan import ScanTypeError, ScanValueError, train
from onescan.train import program
from onescan.train.length import chunk_length, estimated_seconds
from onescan.train.program import is_one_by_one
from onescan.train.state import divided

X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
Y = np.sin(X).sum(1)
ADAM = optax.adam(0.05)


class State(NamedTuple):
    params: dict
    optimiser: optax.OptState
    steps: int


def begin():
    params = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    return State(params, ADAM.init(params), 0)


def step(state, batch):
    def loss(params):
        return jnp.mean((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2)

    value, grads = jax.value_and_grad(loss)(state.params)
    updates, optimiser = ADAM.update(grads, state.optimiser)
    params = optax.apply_updates(state.params, updates)
    return State(params, optimiser, state.steps + 1), {"loss": value, "b": params["b"]}


def fit(data, **options):
    return train.fit(step, begin(), data, progress=False, **options)


def python_loop(batches):
    state, losses = begin(), []
    for batch in batches:
        state, metrics = jax.jit(step)(state, batch)
        losses.append(metrics["loss"])
    return state, np.array(losses)


def stacked(count=24, size=5):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, size, 3)).astype(np.float32)
    return {"x": x, "y": x.sum(-1)}


def one_by_one(batches):
    count = len(batches["x"])
    return [jax.tree.map(lambda leaf: leaf[i], batches) for i in range(count)]


def test_equals_the_python_loop():
    batches = stacked()
    state, losses = python_loop(one_by_one(batches))
    run = fit(batches)
    np.testing.assert_allclose(run.metrics["loss"], losses, rtol=1e-4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        run.state,
        state,
    )
    assert (run.steps, run.stopped, run.state.steps) == (24, "end", 24)
    assert isinstance(run.metrics["loss"], np.ndarray)
    assert repr(run).startswith("Run(steps=24, stopped='end', last: b ")


def test_all_sources_give_the_same(monkeypatch):
    batches = stacked()
    whole = fit(jax.tree.map(jnp.asarray, batches), chunk=8)
    for source in (
        batches,
        iter(one_by_one(batches)),
        lambda epoch: one_by_one(batches),
        (batch for batch in one_by_one(batches)),
    ):
        run = fit(source, chunk=8, **({"epochs": 1} if callable(source) else {}))
        np.testing.assert_array_equal(run.metrics["loss"], whole.metrics["loss"])


def test_shuffled_epochs_are_the_same_on_host_and_device():
    data = {"x": X, "y": Y}
    host = fit(train.batches(data, 8), epochs=7, chunk=12)
    device = fit(train.batches(jax.tree.map(jnp.asarray, data), 8), epochs=7, chunk=12)
    assert host.steps == device.steps == 7 * 6
    np.testing.assert_allclose(
        host.metrics["loss"], device.metrics["loss"], rtol=1e-5, atol=1e-7
    )
    other = fit(train.batches(data, 8), epochs=7, chunk=12, seed=1)
    assert not np.allclose(other.metrics["loss"], host.metrics["loss"], rtol=1e-2)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("place", [np.asarray, jnp.asarray])
def test_an_epoch_sees_every_example_once(place, shuffle):
    def see(state, batch):
        return state, batch

    data = train.batches(place(np.arange(20)), 4, shuffle=shuffle)
    run = train.fit(see, None, data, epochs=3, chunk=4, progress=False)
    epochs = run.metrics.reshape(3, 20)
    assert np.sort(epochs, 1).tolist() == [list(range(20))] * 3
    in_order = [epoch.tolist() == list(range(20)) for epoch in epochs]
    assert in_order == [not shuffle] * 3


def test_a_smaller_last_batch_and_a_shorter_last_chunk():
    batches = one_by_one(stacked(7, 5)) + one_by_one(stacked(1, 2))
    run = fit(lambda epoch: batches, epochs=2, chunk=3)
    _, losses = python_loop(batches * 2)
    np.testing.assert_allclose(run.metrics["loss"], losses, rtol=1e-4)


def test_the_state_of_the_caller_stays():
    state = begin()
    train.fit(step, state, stacked(), progress=False)
    assert state.params["w"].tolist() == [0, 0, 0]


def test_a_state_may_hold_an_array_twice():
    zeros = jnp.zeros(2)
    both = lambda s, _: ({"m": s["m"] + 1, "v": s["v"] + 2}, s["m"][0])
    run = train.fit(both, {"m": zeros, "v": zeros}, steps=3, progress=False)
    assert (run.state["m"].tolist(), run.state["v"].tolist()) == ([3, 3], [6, 6])


@pytest.mark.parametrize("chunk", [1, 5, 24])
def test_until_does_not_depend_on_chunks(chunk):
    until = lambda state, metrics: metrics["loss"] < 1.0
    free = fit(stacked())
    first = int((free.metrics["loss"] < 1.0).argmax())
    run = fit(stacked(), until=until, chunk=chunk)
    assert (run.steps, run.stopped) == (first + 1, "until")
    np.testing.assert_allclose(
        run.metrics["loss"], free.metrics["loss"][: first + 1], rtol=1e-5
    )
    state, _ = python_loop(one_by_one(stacked())[: first + 1])
    assert run.state.steps == first + 1
    np.testing.assert_allclose(run.state.params["w"], state.params["w"], rtol=1e-4)


def test_without_batches():
    walk = lambda state, _: (state + 1, state)
    run = train.fit(walk, 3, steps=5, progress=False)
    assert run.state == 8
    assert run.metrics.tolist() == [3, 4, 5, 6, 7]
    nothing = train.fit(lambda s, _: (s + 1, None), 0, steps=2, progress=False)
    assert (int(nothing.state), nothing.metrics) == (2, None)
    assert train.fit(walk, 3, steps=0, progress=False).metrics.shape == (0,)


def test_equinox_modules_are_states():
    class Net(eqx.Module):
        layers: list
        activation: object
        rate: float

    keys = jax.random.split(jax.random.key(0))
    net = Net(
        [eqx.nn.Linear(3, 4, key=keys[0]), eqx.nn.Linear(4, 1, key=keys[1])],
        jax.nn.relu,
        0.1,
    )

    def net_step(net, batch):
        def loss(net):
            assert isinstance(net.rate, float)
            first, second = net.layers
            hidden = net.activation(jax.vmap(first)(batch["x"]))
            return jnp.mean((jax.vmap(second)(hidden)[:, 0] - batch["y"]) ** 2)

        value, grads = eqx.filter_value_and_grad(loss)(net)
        return eqx.apply_updates(net, jax.tree.map(lambda g: -net.rate * g, grads)), (
            value
        )

    run = train.fit(net_step, net, stacked(), progress=False)
    assert run.state.activation is jax.nn.relu
    assert run.state.rate == 0.1
    assert run.metrics[-4:].mean() < run.metrics[:4].mean()


def test_flax_train_states():
    linen = pytest.importorskip("flax.linen")
    from flax.training.train_state import TrainState

    model = linen.Dense(1)
    params = model.init(jax.random.key(0), X)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=ADAM)

    def flax_step(state, batch):
        def loss(params):
            return jnp.mean(
                (state.apply_fn(params, batch["x"])[:, 0] - batch["y"]) ** 2
            )

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), {"loss": value}

    run = train.fit(flax_step, state, stacked(), progress=False)
    assert run.state.step == 24
    assert run.metrics["loss"][-1] < run.metrics["loss"][0]


def blurring_step(kernel, batch):
    def loss(kernel):
        return jnp.mean((jnp.convolve(batch["y"], kernel, "same") - 1) ** 2)

    value, slope = jax.value_and_grad(loss)(kernel)
    return kernel - 0.1 * slope, {"loss": value}


@pytest.mark.parametrize("until", [None, lambda state, metrics: metrics["loss"] < 0.8])
def test_steps_with_convolutions_are_called_one_by_one(until):
    state, data = jnp.ones(3), stacked()
    tried = divided(blurring_step, state, one_by_one(data)[0])
    assert is_one_by_one(tried)
    assert not is_one_by_one(divided(step, begin(), one_by_one(data)[0]))
    ways = []
    for again in (True, False):
        with mock.patch.object(program, "is_one_by_one", lambda _, again=again: again):
            found = train.fit(
                blurring_step, state, data, chunk=10, until=until, progress=False
            )
            ways.append(found)
    ours, loop = ways
    assert (ours.steps, ours.stopped) == (loop.steps, loop.stopped)
    assert ours.steps == 24 if until is None else 0 < ours.steps < 24
    np.testing.assert_allclose(ours.metrics["loss"], loop.metrics["loss"], rtol=1e-5)
    np.testing.assert_allclose(ours.state, loop.state, rtol=1e-5)


def test_programs_are_compiled_once_for_all_runs():
    program._recent.clear()
    data = stacked()
    first = fit(data, steps=8, chunk=4)
    (loop,) = (known._loop for key, known in program._recent.items() if step in key)
    size = loop._cache_size()
    again = fit(jax.tree.map(lambda leaf: leaf + 0, data), steps=8, chunk=4)
    assert loop._cache_size() == size
    np.testing.assert_array_equal(first.metrics["loss"], again.metrics["loss"])
    held = [known._source for known in program._recent.values()]
    leaves = [leaf for source in held for leaf in jax.tree.leaves(vars(source))]
    assert not any(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves)
    fit(data, steps=8, chunk=4, until=lambda state, metrics: False)
    assert loop._cache_size() == size


def test_errors_of_iterators_come_through():
    def broken():
        yield from one_by_one(stacked())[:10]
        raise RuntimeError("the disk is full")

    seen = []
    with pytest.raises(RuntimeError, match="the disk is full"):
        fit(broken(), chunk=4, log=lambda step, metrics: seen.append(step))
    assert seen == [4]


def test_the_report_names_the_users_step():
    onescan.clear_report()
    program._recent.clear()
    fit(stacked())
    assert Path(__file__).name in str(onescan.report().to_dict())


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: fit(stacked(), steps=3, epochs=1), ScanValueError, "not both"),
        (lambda: fit(None), ScanValueError, "without batches, the number of steps"),
        (lambda: fit(iter([])), ScanValueError, "batches is empty"),
        (lambda: fit(3), ScanTypeError, "batches must be arrays with one batch"),
        (
            lambda: fit(iter([1]), epochs=2),
            ScanValueError,
            "read once, not for epochs=2",
        ),
        (lambda: fit(lambda epoch: []), ScanValueError, "a function of the epoch"),
        (lambda: fit(stacked(), steps=-1), ScanValueError, "steps must be at least 0"),
        (lambda: fit(stacked(), steps=1.5), ScanTypeError, "steps must be an integer"),
        (lambda: fit(stacked(), chunk=0), ScanValueError, "chunk must be at least 1"),
        (
            lambda: fit(stacked(), chunk="big"),
            ScanValueError,
            "chunk must be .auto. or",
        ),
        (lambda: fit(stacked(), keep=0), ScanValueError, "keep must be at least 1"),
        (
            lambda: fit([np.ones(3), np.ones(4)]),
            ScanValueError,
            r"batches\[0\] has 3, batches\[1\] has 4. To go .* give iter\(batches\)",
        ),
        (lambda: train.batches(X, 51), ScanValueError, "size=51 .* data has 50"),
        (lambda: train.batches(X, 0), ScanValueError, "size must be at least 1"),
        (
            lambda: train.batches({"x": X, "y": Y[:3]}, 5),
            ScanValueError,
            r"data\['x'\] has 50, data\['y'\] has 3",
        ),
        (
            lambda: train.batches([1, 2], 1),
            ScanTypeError,
            r"data\[0\] is 1, of type int",
        ),
        (lambda: train.batches({}, 1), ScanValueError, "data has no arrays"),
        (lambda: train.batches(jnp.ones(()), 1), ScanValueError, "data is a number"),
        (
            lambda: fit(iter([{"x": "a"}])),
            ScanTypeError,
            r"batch\['x'\] of the batches",
        ),
        (
            lambda: train.fit(lambda s, b: s, 0, steps=1),
            ScanTypeError,
            r"<lambda> \(.*\) must return a pair \(state, metrics\), but it returned i",
        ),
        (
            lambda: train.fit(lambda s, b: ({"a": 1}, None), {"b": 1}, steps=1),
            ScanTypeError,
            r"state\['b'\] is missing",
        ),
        (
            lambda: train.fit(lambda s, b: ({"a": 1, "b": 1}, 0), {"b": 1}, steps=1),
            ScanTypeError,
            r"state\['a'\] is new. Put it into the first state too",
        ),
        (
            lambda: train.fit(lambda s, b: (list(s), 0), (1, 2), steps=1),
            ScanTypeError,
            r"PyTreeDef\(\[\*, \*\]\) instead of PyTreeDef\(\(\*, \*\)\)",
        ),
        (
            lambda: train.fit(lambda s, b: (s / 2, 0), jnp.ones(2, int), steps=1),
            ScanTypeError,
            r"state from int32\[2\] to float32\[2\]. .* cast it back with .astype",
        ),
        (
            lambda: train.fit(lambda s, b: (jnp.ones(3), 0), jnp.ones(2), steps=1),
            ScanTypeError,
            r"state from float32\[2\] to float32\[3\]. .* keep its shape",
        ),
        (
            lambda: train.fit(lambda s, b: (["b"], 0), ["a"], steps=1),
            ScanTypeError,
            r"changes state\[0\], which is a str",
        ),
    ],
)
def test_errors(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_chunks_are_chosen_by_work_and_divide_the_run():
    small = jax.make_jaxpr(lambda a: a + 1)(1.0).jaxpr
    large = jax.make_jaxpr(lambda a: a @ a)(jnp.ones((500, 500))).jaxpr
    assert chunk_length(small, None) > 50 * chunk_length(large, None)
    assert chunk_length(large, 1000) in (10, 20)
    assert chunk_length(small, 7) == 7
    assert chunk_length(small, None, batch_bytes=32 << 20) == 2

    def loop(a):
        return jax.lax.scan(lambda c, _: (c @ c, None), a, length=10)[0]

    looped = jax.make_jaxpr(loop)(jnp.ones((500, 500))).jaxpr
    ratio = estimated_seconds(looped) / estimated_seconds(large)
    assert ratio == pytest.approx(10)
