"""One decoder block, and the decoder as a loop over its blocks.

Letters: B batch, S new tokens, T slots of the cache, D model, R query heads for each
of H key-value heads, K width of a head, F hidden, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from examples.llama import kernels
from examples.llama.attending import StackedCache, attend, hidden_slots
from examples.llama.cache import KVCache
from examples.llama.config import Config
from examples.llama.params import Attention, DecoderBlock, Llama
from examples.llama.products import Stacked, product, products, taken
from examples.llama.rotary import angles, rotate
from onescan.layers import scan_layers, split_key


class Context(NamedTuple):
    """What a block has to know about its tokens, the same for all layers."""

    cos: jax.Array  # (B, S, K / 2), of their positions
    sin: jax.Array
    new_mask: jax.Array  # (B, S, S), which new tokens each may look at
    old_mask: jax.Array | None = None  # (B, T), which slots of the cache


def causal_context(config: Config, token_mask: jax.Array) -> Context:
    """For sequences from their beginning; the mask (B, S) is false for padding."""
    positions = jnp.maximum(jnp.cumsum(token_mask, axis=1) - 1, 0)
    size = token_mask.shape[1]
    causal = jnp.tril(jnp.ones((size, size), bool))
    return Context(*angles(config, positions), causal & token_mask[:, None, :])


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    wide = x.astype(jnp.float32)
    wide *= jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + eps)
    return scale * wide.astype(x.dtype)


def dropout(x: jax.Array, key: Any, rate: float) -> jax.Array:
    if key is None or rate == 0:
        return x
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / (1 - rate), 0).astype(x.dtype)


def attention(
    params: Attention,
    x: jax.Array,
    context: Context,
    cache: KVCache | StackedCache | None,
    implementation: str | None = None,
) -> tuple[jax.Array, KVCache]:
    """Grouped-query attention; also gives the keys and values of the new tokens."""
    cos, sin, new_mask, old_mask = context
    q, k, v = products(x, [params.q_proj, params.k_proj, params.v_proj])
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    new = KVCache(k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3))  # (B, H, S, K)
    if isinstance(cache, StackedCache):
        mixed = attend(q, new, cache)
    elif cache is None and implementation is not None:
        mixed = fused_attention(q, k, v, new_mask, implementation)
    else:
        mixed = plain_attention(q, new, new_mask, cache, old_mask)
    return product(mixed, params.out_proj, 3), new


def plain_attention(
    q: jax.Array,
    new: KVCache,
    new_mask: jax.Array,
    cache: KVCache | None,
    old_mask: jax.Array | None,
) -> jax.Array:
    """Queries (B, S, R, H, K) with the new tokens and those of the cache."""
    parts = [(new, new_mask[:, None, None])]
    if cache is not None and old_mask is not None:
        parts.append((cache, old_mask[:, None, None, None]))
    weights = softmax([scores(q, part.keys, mask) for part, mask in parts])
    return sum(
        jnp.einsum("bhrst,bhtk->bsrhk", weight.astype(q.dtype), part.values)
        for weight, (part, _) in zip(weights, parts, strict=True)
    )


def fused_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array, implementation: Any
) -> jax.Array:
    """The same by JAX's own function, whose query heads are (H, R)."""
    heads = q.swapaxes(2, 3)  # (B, S, H, R, K)
    mixed = jax.nn.dot_product_attention(
        heads.reshape(*q.shape[:2], -1, q.shape[-1]),
        k,
        v,
        mask=mask[:, None],
        implementation=implementation,
    )
    return mixed.reshape(heads.shape).swapaxes(2, 3)


def scores(q: jax.Array, keys: jax.Array, mask: jax.Array) -> jax.Array:
    """(B, H, R, S, T) in float32; what the mask hides is as low as can be."""
    wide = jnp.einsum("bsrhk,bhtk->bhrst", q, keys, preferred_element_type=jnp.float32)
    return jnp.where(mask, wide * q.shape[-1] ** -0.5, jnp.finfo(jnp.float32).min)


def softmax(parts: list[jax.Array]) -> list[jax.Array]:
    """One softmax over the last axes of all parts together, without joining them."""
    top = parts[0].max(axis=-1, keepdims=True)
    for part in parts[1:]:
        top = jnp.maximum(top, part.max(axis=-1, keepdims=True))
    powers = [jnp.exp(part - top) for part in parts]
    total = sum(power.sum(axis=-1, keepdims=True) for power in powers)
    return [power / total for power in powers]


def decoder_block(
    params: DecoderBlock,
    seq: jax.Array,
    context: Context,
    *,
    key: Any = None,
    cache: KVCache | StackedCache | None = None,
    model_config: Config,
) -> tuple[jax.Array, KVCache]:
    """One layer: the next sequence, and its own new keys and values."""
    attn_key, mlp_key = split_key(key)
    rate, eps = model_config.dropout, model_config.norm_eps
    x = rms_norm(seq, taken(params.input_norm), eps)
    x, new = attention(params.attention, x, context, cache, model_config.attention)
    seq = seq + dropout(checkpoint_name(x, "attention"), attn_key, rate)

    x = rms_norm(seq, taken(params.post_attn_norm), eps)
    gate, up = products(x, [params.gate_proj, params.up_proj])
    x = product(jax.nn.silu(gate) * up, params.down_proj)
    return seq + dropout(checkpoint_name(x, "mlp"), mlp_key, rate), new


def decoder(
    params: DecoderBlock | list[DecoderBlock],
    seq: jax.Array,
    context: Context,
    *,
    model_config: Config,
    key: Any = None,
    cache: Any = None,
    **options: Any,
) -> tuple[jax.Array, Any]:
    """All layers as one loop, or, for a list of blocks, one after the other.

    Gives the new sequence and the new keys and values of all layers. The `options`
    are those of `scan_layers`: remat, unroll.
    """

    def block(layer: DecoderBlock, seq: jax.Array, *, key: Any, cache: Any) -> Any:
        return decoder_block(
            layer, seq, context, key=key, cache=cache, model_config=model_config
        )

    if isinstance(params, DecoderBlock):
        if cache is not None and kernels.suit(model_config, seq, cache):
            return in_place(block, params, seq, context, cache, key=key, **options)
        return scan_layers(block, params, seq, key=key, cache=cache, **options)
    new = []
    for layer, own_cache in zip(params, cache or [None] * len(params), strict=True):
        key, subkey = split_key(key)
        seq, kv = block(layer, seq, key=subkey, cache=own_cache)
        new.append(kv)
    return seq, new


def in_place(
    block: Any,
    params: DecoderBlock,
    seq: jax.Array,
    context: Context,
    cache: KVCache,
    **options: Any,
) -> Any:
    """The loop over layers, whose block gets the stacks and the number of its layer."""
    hidden = hidden_slots(context.old_mask)

    def numbered(layer: jax.Array, seq: jax.Array, *, key: Any) -> Any:
        stacked = jax.tree.map(lambda stack: Stacked(stack, layer), params)
        own = StackedCache(cache, layer, hidden)
        return block(stacked, seq, key=key, cache=own)

    return scan_layers(numbered, jnp.arange(len(params.input_norm)), seq, **options)


def logits_of(params: Llama, seq: jax.Array, config: Config) -> jax.Array:
    """(B, S, V) in float32."""
    head = params.embedding if params.lm_head is None else params.lm_head
    seq = rms_norm(seq, params.norm, config.norm_eps)
    return jnp.einsum("bsd,vd->bsv", seq, head, preferred_element_type=jnp.float32)


@partial(jax.jit, static_argnames=("config", "remat", "unroll"))
def forward(
    params: Llama,
    tokens: jax.Array,
    token_mask: jax.Array | None = None,
    *,
    config: Config,
    key: Any = None,
    remat: Any = None,
    unroll: int = 1,
) -> jax.Array:
    """The logits (B, S, V) of whole sequences of tokens (B, S), without a cache."""
    if token_mask is None:
        token_mask = jnp.ones(tokens.shape, bool)
    seq, _ = decoder(
        params.decoder,
        params.embedding[tokens],
        causal_context(config, token_mask),
        model_config=config,
        key=key,
        remat=remat,
        unroll=unroll,
    )
    return logits_of(params, seq, config)
