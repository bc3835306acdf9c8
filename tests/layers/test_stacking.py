"""`stack` and `unstack`: containers of every kind, and where layers differ."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onescan.errors import ScanTypeError, ScanValueError
from onescan.layers import scan_layers, stack, unstack


class Named(NamedTuple):
    w: jax.Array
    inner: dict


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    w: jax.Array
    name: str = dataclasses.field(metadata={"static": True})


def arrays(seed):
    return jax.random.normal(jax.random.key(seed), (3, 3))


CONTAINERS = {
    "dict": lambda seed: {"w": arrays(seed)},
    "NamedTuple": lambda seed: Named(arrays(seed), {"b": [arrays(seed + 9), None]}),
    "dataclass": lambda seed: Data(arrays(seed), "layer"),
    "Equinox": lambda seed: eqx.nn.MLP(3, 3, 4, 1, key=jax.random.key(seed)),
    "array": arrays,
    "key": jax.random.key,
}


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if eqx.is_array(one) and jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_there_and_back(kind):
    blocks = [CONTAINERS[kind](seed) for seed in range(3)]
    stacked = stack(blocks)
    for leaf in jax.tree.leaves(stacked):
        assert not eqx.is_array(leaf) or leaf.shape[0] == 3
    assert_same(unstack(stacked), blocks)


def test_an_equinox_module_runs_as_layers():
    blocks = [CONTAINERS["Equinox"](seed) for seed in range(3)]
    x = y = jnp.ones(3)
    got, _ = scan_layers(lambda mlp, x: (mlp(x), None), stack(blocks), x)
    for mlp in blocks:
        y = mlp(y)
    np.testing.assert_allclose(got, y, rtol=1e-5)


def test_numpy_stays_numpy():
    stacked = stack([{"a": np.float32(1), "b": np.ones(2)} for _ in range(3)])
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(stacked))


def test_under_jit():
    blocks = [CONTAINERS["dict"](seed) for seed in range(3)]
    assert_same(jax.jit(lambda blocks: unstack(stack(blocks)))(blocks), blocks)


@pytest.mark.parametrize("count", [4, 6, 7])
def test_patterns_there_and_back(count):
    blocks = [
        {"a": arrays(i)} if i % 3 else {"b": arrays(i), "c": jnp.float32(i)}
        for i in range(count)
    ]
    stacked = stack(blocks, period=3)
    assert [len(jax.tree.leaves(part)) for part in stacked] == [2, 1, 1]
    assert_same(unstack(stacked, period=3), blocks)


def three(change):
    def layer():
        return {"attn": {"q": np.zeros((2, 2))}, "mlp": {"w": np.ones(3), "eps": 1e-5}}

    blocks = [layer() for _ in range(3)]
    change(blocks[2])
    return blocks


DIFFERENCES = {
    "shape": (
        lambda layer: layer["mlp"].update(w=np.ones(4)),
        r"layer 2 differs from layer 0 at blocks\[2\]\['mlp'\]\['w'\]: float64\[4\], "
        r"where layer 0 has float64\[3\]",
    ),
    "dtype": (
        lambda layer: layer["attn"].update(q=np.zeros((2, 2), np.float16)),
        r"blocks\[2\]\['attn'\]\['q'\]: float16\[2,2\], where layer 0 has float64\[2,2",
    ),
    "missing": (
        lambda layer: layer["mlp"].pop("w"),
        r"blocks\[2\]\['mlp'\]\['w'\]: nothing, where layer 0 has float64\[3\]",
    ),
    "extra": (
        lambda layer: layer.update(z=np.ones(2)),
        r"blocks\[2\]\['z'\]: float64\[2\], where layer 0 has nothing",
    ),
    "container": (
        lambda layer: layer.update(attn=[np.zeros((2, 2))]),
        r"blocks\[2\]\['attn'\]: a list of 1, where layer 0 has a dict with the keys",
    ),
    "None": (
        lambda layer: layer["mlp"].update(w=None),
        r"blocks\[2\]\['mlp'\]\['w'\]: None, where layer 0 has float64\[3\]",
    ),
    "number": (
        lambda layer: layer["mlp"].update(eps=1e-6),
        r"\['eps'\]: 1e-06, where layer 0 has 1e-05.* numbers that differ .* arrays",
    ),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_the_first_difference_is_named(case):
    change, message = DIFFERENCES[case]
    with pytest.raises(ScanTypeError, match=message):
        stack(three(change))


def test_static_fields_may_not_differ():
    blocks = [Data(jnp.ones(2), name) for name in "aab"]
    with pytest.raises(ScanTypeError, match=r"blocks\[2\].*with other static fields"):
        stack(blocks)


def test_a_period_is_suggested_and_checked():
    blocks = [np.zeros(5 if i % 4 == 3 else 3) for i in range(8)]
    with pytest.raises(ScanTypeError, match=r"layer 3 .*stack\(blocks, period=4\)"):
        stack(blocks)
    with pytest.raises(ScanTypeError, match=r"layer 3 differs from layer 1 "):
        stack(blocks, period=2)


MISTAKES = {
    "one layer": (lambda: stack({"w": 1}), "blocks must be a list of layers"),
    "a tuple": (lambda: stack(Named(1, {})), "which looks like a single layer"),
    "empty": (lambda: stack([]), "0 layers cannot be stacked with a period of 1"),
    "period": (lambda: stack([1], period=0), "period must be an integer >= 1"),
    "few": (lambda: stack([1], period=2), "1 layers cannot be .* period of 2"),
    "not a tuple": (
        lambda: unstack(np.zeros(3), period=2),
        r"with period=2 stacked must be a tuple of 2 stacks, but it is float",
    ),
    "counts": (
        lambda: unstack((np.zeros(3), np.zeros(1)), period=2),
        "the places of the pattern stacked have 3 and 1 layers",
    ),
    "scalar": (lambda: unstack({"a": np.float32(1)}), r"stacked\['a'\] is float32\[\]"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes(case):
    mistake, message = MISTAKES[case]
    with pytest.raises((ScanTypeError, ScanValueError), match=message):
        mistake()


def test_the_state_of_a_flax_module():
    nnx = pytest.importorskip("flax.nnx")
    modules = [nnx.Linear(3, 3, rngs=nnx.Rngs(seed)) for seed in range(3)]
    graph, _ = nnx.split(modules[0])
    states = [nnx.state(module) for module in modules]

    def block(state, x):
        return jnp.tanh(nnx.merge(graph, state)(x)), None

    x = y = jnp.ones((2, 3))
    got, _ = scan_layers(block, stack(states), x)
    for module in modules:
        y = jnp.tanh(module(y))
    np.testing.assert_allclose(got, y, rtol=1e-5)
    assert_same(unstack(stack(states)), states)
