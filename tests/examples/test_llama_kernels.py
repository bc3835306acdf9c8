"""The kernels of a decode step, interpreted, against JAX's own products."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from llama_models import SMALL, numpy_params

import onescan
from examples.llama import kernels, products
from examples.llama.cache import KVCache, empty_state, slots_for
from examples.llama.generate import generate, next_logits

WIDE = replace(SMALL, model=32, head=16, hidden=48, kernels=True)
PLAIN = replace(WIDE, kernels=False)


def half_full(config, slots=32):
    """A state of two sequences, of which 3 and 29 slots are in use."""
    state = empty_state(config, 2, slots, jnp.float32)
    used = jnp.arange(slots) < jnp.array([[3], [29]])
    keys = jax.random.normal(jax.random.key(0), state.kv.keys.shape)
    kv = KVCache(keys, 1 + keys**2)
    return state._replace(kv=kv, used=used, filled=jnp.int32(29))


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_decode_step_by_kernels_is_the_same(repeats):
    kernels_config = replace(WIDE, repeats=repeats)
    params, state = numpy_params(kernels_config), half_full(kernels_config)
    with onescan.engine("xla"):
        (found, then), (plain, after) = (
            next_logits(params, state, jnp.array([3, 9]), config)
            for config in (kernels_config, replace(kernels_config, kernels=False))
        )
    assert jnp.abs(plain).max() > 0.1
    np.testing.assert_allclose(found, plain, atol=1e-4)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-4), after, then)


def test_generation_by_kernels_is_the_same():
    params = numpy_params(WIDE)
    with onescan.engine("xla"):
        pieces = [
            np.concatenate(list(generate(params, [[5, 3]], config=config, tokens=5)), 1)
            for config in (WIDE, PLAIN)
        ]
    np.testing.assert_array_equal(*pieces)


@pytest.mark.parametrize("stacks", [1, 3])
def test_a_kernel_reads_the_layer_it_is_told(stacks, monkeypatch):
    monkeypatch.setattr(products, "PROGRAMS", 4)  # so that sums are divided
    x = jnp.ones((3, 512))
    stack = jnp.arange(4.0)[:, None, None] * jnp.ones((4, 512, 128))
    many = [stack * (1 + i) for i in range(stacks)]
    found = products.in_place(x, many, jnp.int32(3))
    for i, each in enumerate(found):
        np.testing.assert_allclose(each, np.full((3, 128), 1536.0 * (1 + i)))


def number_of_kernels(config, batch=2, slots=64):
    params, state = numpy_params(config), empty_state(config, batch, slots, jnp.float32)
    step = partial(next_logits, config=config)
    traced = jax.make_jaxpr(step)(params, state, jnp.zeros(batch, jnp.int32))
    return str(traced).count("pallas_call[")


def test_products_of_one_shape_share_a_kernel():
    single = replace(WIDE, repeats=1)
    assert number_of_kernels(single) == 5  # q k v, attention, out, gate up, down
    assert number_of_kernels(WIDE) == 6  # q is wider than k and v


UNSUITED = {
    "a narrow head": (replace(WIDE, head=8), {}),
    "a head of no power of two": (replace(WIDE, head=48), {}),
    "a width of no tiles": (replace(WIDE, hidden=40), {}),
    "many query heads": (replace(WIDE, repeats=17), {}),
    "many sequences": (WIDE, {"batch": products.MOST_TOKENS + 1}),
    "an odd cache": (WIDE, {"slots": 30}),
    "not wanted": (PLAIN, {}),
    "no GPU": (replace(WIDE, kernels=None), {}),
}


@pytest.mark.parametrize("case", UNSUITED)
def test_other_sizes_are_multiplied_by_xla(case):
    config, sizes = UNSUITED[case]
    assert number_of_kernels(config, **sizes) == 0


@pytest.mark.parametrize(
    ("platform", "version", "capability", "dtype", "suited"),
    [
        ("gpu", "cuda 12090", "9.0", "bfloat16", True),
        ("gpu", "cuda 12090", "10.0", "float16", True),
        ("gpu", "cuda 12090", "9.0", "float32", False),
        ("gpu", "cuda 12090", "7.5", "bfloat16", False),
        ("gpu", "rocm 60000", "gfx942", "bfloat16", False),
        ("cpu", "cpu", None, "bfloat16", False),
    ],
)
def test_where_the_kernels_run(
    platform, version, capability, dtype, suited, monkeypatch
):
    client = SimpleNamespace(platform_version=version)
    device = SimpleNamespace(platform=platform, client=client)
    device.compute_capability = capability
    monkeypatch.setattr(jax, "devices", lambda: [device])
    config = replace(WIDE, kernels=None)
    kv = KVCache(*[jax.ShapeDtypeStruct((2, 1, 2, 64, 16), dtype)] * 2)
    seq = jax.ShapeDtypeStruct((1, 1, 32), dtype)
    assert kernels.suit(config, seq, kv) == suited


def test_slots_come_in_whole_blocks():
    assert [slots_for(tokens) for tokens in (1, 64, 65)] == [64, 64, 128]
