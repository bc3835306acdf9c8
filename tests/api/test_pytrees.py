"""Containers: the body sees the user's own, and results come back in them."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox
import jax
import jax.numpy as jnp
import pytest
from compare import assert_same

import onescan
from onescan.api import reference

SCANS = pytest.mark.parametrize("scan", [onescan.scan, reference.scan])


class Attention(NamedTuple):
    q_proj: Any
    k_proj: Any
    v_proj: Any
    out_proj: Any


class DecoderBlock(NamedTuple):
    input_norm: Any
    attention: Attention
    post_attn_norm: Any
    gate_proj: Any
    up_proj: Any
    down_proj: Any


ONE_LAYER = DecoderBlock(
    input_norm=(4096,),
    attention=Attention(
        q_proj=(4096, 1, 32, 128),
        k_proj=(4096, 32, 128),
        v_proj=(4096, 32, 128),
        out_proj=(1, 32, 128, 4096),
    ),
    post_attn_norm=(4096,),
    gate_proj=(4096, 11008),
    up_proj=(4096, 11008),
    down_proj=(11008, 4096),
)


def is_shape(x: Any) -> bool:
    return type(x) is tuple


@SCANS
def test_a_stack_of_32_decoder_blocks_at_full_size(scan):
    """The listing of the document: each layer is one step, without its first axis."""
    params = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct((32, *shape), jnp.bfloat16),
        ONE_LAYER,
        is_leaf=is_shape,
    )
    seen = []

    def inner(state, input_):
        key, seq = state
        seen.append(jax.tree.map(jnp.shape, input_))
        assert isinstance(input_, DecoderBlock)
        assert isinstance(input_.attention, Attention)
        q = jnp.einsum("bsm,mrhd->brhsd", seq * input_.input_norm, input_.attention[0])
        out = jnp.einsum("brhsd,rhdm->bsm", q, input_.attention.out_proj)
        up = jax.nn.silu(out @ input_.gate_proj) * (out @ input_.up_proj)
        return (key, seq + up @ input_.down_proj), None

    seq = jax.ShapeDtypeStruct((2, 128, 4096), jnp.bfloat16)
    run = lambda seq, params: scan(inner, (None, seq), params)
    with jax.enable_x64(False):
        (key, out), nothing = jax.eval_shape(run, seq, params)
    assert all(shapes == ONE_LAYER for shapes in seen)
    assert seen
    assert (key, nothing) == (None, None)
    assert (out.shape, out.dtype) == (seq.shape, seq.dtype)


class Layer(equinox.Module):
    weight: jax.Array
    bias: jax.Array

    def __call__(self, x):
        return jnp.tanh(self.weight @ x + self.bias)


@SCANS
def test_equinox_modules_as_xs(scan):
    keys = jax.random.split(jax.random.key(0), 4)
    layers = jax.vmap(lambda k: Layer(jax.random.normal(k, (3, 3)), jnp.ones(3)))(keys)

    def f(x, layer):
        assert isinstance(layer, Layer)
        x = layer(x)
        return x, x

    expected = jnp.ones(3)
    for i in range(4):
        expected = jnp.tanh(layers.weight[i] @ expected + layers.bias[i])
    last, _ = scan(f, jnp.ones(3), layers)
    assert_same(last, expected)


@SCANS
def test_equinox_modules_as_carry(scan):
    def f(layer, x):
        y = layer(x)
        return Layer(layer.weight * 0.9, layer.bias + 0.1 * y), layer

    init = Layer(jnp.eye(3), jnp.zeros(3))
    xs = jax.random.normal(jax.random.key(0), (4, 3))
    last, layers = scan(f, init, xs)
    assert isinstance(last, Layer)
    assert layers.weight.shape == (4, 3, 3)
    assert_same((last, layers), jax.lax.scan(f, init, xs))


class Fields(equinox.Module):
    value: jax.Array
    name: str = equinox.field(static=True)


def test_static_fields_are_kept():
    def f(c, x):
        assert c.name == "total"
        return Fields(c.value + x, c.name), Fields(c.value, "ys")

    last, ys = onescan.scan(f, Fields(jnp.float32(0), "total"), jnp.ones(3))
    assert (last.name, ys.name) == ("total", "ys")
    assert ys.value.tolist() == [0, 1, 2]


@jax.tree_util.register_dataclass
@dataclass
class Registered:
    a: Any
    b: Any


CONTAINERS = [
    (1.0, (2.0, ())),
    [1.0, [2.0, []]],
    {"z": 1.0, "a": {"m": 2.0}},
    collections.OrderedDict(z=1.0, a=2.0),
    Attention(1.0, (2.0,), {"k": 3.0}, None),
    Registered(1.0, Registered(2.0, None)),
    {"none": None, "list": [None, 1.0]},
    None,
    (),
    {},
    [(), {}, None],
]


@pytest.mark.parametrize("tree", CONTAINERS, ids=repr)
@SCANS
def test_containers_come_back_as_they_were(scan, tree):
    tree = jax.tree.map(jnp.float32, tree)
    xs = jax.tree.map(lambda leaf: leaf + jnp.arange(3.0), tree)

    def f(carry, x):
        assert jax.tree.structure(carry) == jax.tree.structure(tree)
        assert jax.tree.structure(x) == jax.tree.structure(tree)
        return jax.tree.map(jnp.add, carry, x), x

    carry, ys = scan(f, tree, xs, length=3)
    assert_same(carry, jax.tree.map(lambda a, b: a + b.sum(), tree, xs))
    assert_same(ys, xs)


def test_the_pair_may_be_a_list():
    f = lambda c, x: [c + x, c]
    xs = jnp.arange(3)
    assert_same(onescan.scan(f, 0, xs), jax.lax.scan(f, 0, xs))
