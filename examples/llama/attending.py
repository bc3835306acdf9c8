"""Attention of one new token to a layer's cache, as one kernel on the whole stack.

For each head: the scores of all slots, their softmax and the mixture of the values,
block of slots by block, with the largest score so far taken out of all powers, so that
nothing but the result is written.  The new token is the first block of its own.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from examples.llama.cache import SLOTS, KVCache
from examples.llama.products import NARROWEST

WARPS, STAGES = 4, 3


class StackedCache(NamedTuple):
    """The cache of one layer, where it lies among those of all layers."""

    kv: KVCache  # (layers, B, H, T, K)
    layer: jax.Array
    hidden: jax.Array  # (B, T), 0 for a slot in use, or as low as can be


def hidden_slots(used: jax.Array) -> jax.Array:
    return jnp.where(used, 0, jnp.finfo(jnp.float32).min).astype(jnp.float32)


def attend(q: jax.Array, new: KVCache, cache: StackedCache) -> jax.Array:
    """Queries (B, 1, R, H, K) with the new token's (B, H, 1, K) and the cache."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    batch, _, repeats, heads, width = q.shape
    layers, *_, slots, _ = cache.kv.keys.shape
    q = q.transpose(0, 3, 1, 2, 4).reshape(batch, heads, repeats, width)
    q = jnp.pad(q, ((0, 0), (0, 0), (0, NARROWEST - repeats), (0, 0)))
    one = pallas.BlockSpec((None, None, 1, width), lambda b, h: (b, h, 0, 0))
    rows = pallas.BlockSpec((None, None, NARROWEST, width), lambda b, h: (b, h, 0, 0))
    stack = pallas.BlockSpec(
        (layers, None, None, slots, width), lambda b, h: (0, b, h, 0, 0)
    )
    run = pallas.pallas_call(
        functools.partial(_kernel, block=math.gcd(slots, SLOTS), scale=width**-0.5),
        grid=(batch, heads),
        in_specs=[
            pallas.BlockSpec((), lambda b, h: ()),
            rows,
            one,
            one,
            stack,
            stack,
            pallas.BlockSpec((None, slots), lambda b, h: (b, 0)),
        ],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=jax.default_backend() == "cpu",
    )
    mixed = run(cache.layer, q, *new, *cache.kv, cache.hidden)
    return mixed[:, :, None, :repeats].transpose(0, 2, 3, 1, 4)


def _kernel(
    layer_ref: Any,
    q_ref: Any,
    key_ref: Any,
    value_ref: Any,
    keys_ref: Any,
    values_ref: Any,
    hidden_ref: Any,
    out_ref: Any,
    *,
    block: int,
    scale: float,
) -> None:
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    layer, q = layer_ref[()], q_ref[...]
    key = key_ref[...].astype(jnp.float32)
    top = jnp.sum(q.astype(jnp.float32) * key, axis=1) * scale
    total = jnp.ones_like(top)
    mixed = value_ref[...].astype(jnp.float32) * jnp.ones(q.shape, jnp.float32)

    def add(step: Any, before: Any) -> Any:
        top, total, mixed = before
        slots = pallas.ds(step * block, block)
        scores = triton.dot(q, keys_ref[layer, slots, :], trans_b=True) * scale
        scores += hidden_ref[slots][None, :]
        higher = jnp.maximum(top, jnp.max(scores, axis=1))
        fade = jnp.exp(top - higher)
        powers = jnp.exp(scores - higher[:, None])
        values = values_ref[layer, slots, :]
        part = triton.dot(powers.astype(values.dtype), values)
        total = total * fade + jnp.sum(powers, axis=1)
        return higher, total, mixed * fade[:, None] + part

    blocks = hidden_ref.shape[0] // block
    _, total, mixed = jax.lax.fori_loop(0, blocks, add, (top, total, mixed))
    out_ref[...] = (mixed / total[:, None]).astype(out_ref.dtype)
