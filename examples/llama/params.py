"""The parameters of a Llama: NamedTuples of arrays with a leading axis of layers."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from examples.llama.config import Config


class Attention(NamedTuple):
    q_proj: jax.Array  # (layers, D, R, H, K)
    k_proj: jax.Array  # (layers, D, H, K)
    v_proj: jax.Array  # (layers, D, H, K)
    out_proj: jax.Array  # (layers, R, H, K, D)


class DecoderBlock(NamedTuple):
    input_norm: jax.Array  # (layers, D)
    attention: Attention
    post_attn_norm: jax.Array  # (layers, D)
    gate_proj: jax.Array  # (layers, D, F)
    up_proj: jax.Array  # (layers, D, F)
    down_proj: jax.Array  # (layers, F, D)


class Llama(NamedTuple):
    embedding: jax.Array  # (V, D)
    decoder: DecoderBlock
    norm: jax.Array  # (D,)
    lm_head: jax.Array | None  # (V, D), or None where the embedding is used again


def param_shapes(config: Config, dtype: Any = jnp.float32) -> Llama:
    """The shapes of all parameters, for real arrays or for `explain` alone.

    >>> from examples.llama.config import CONFIGS
    >>> param_shapes(CONFIGS["7b"]).decoder.attention.q_proj
    ShapeDtypeStruct(shape=(32, 4096, 1, 32, 128), dtype=float32)
    """
    n, d, f, v = config.layers, config.model, config.hidden, config.vocab
    r, h, k = config.repeats, config.kv_heads, config.head
    shapes = Llama(
        embedding=(v, d),
        decoder=DecoderBlock(
            input_norm=(n, d),
            attention=Attention(
                q_proj=(n, d, r, h, k),
                k_proj=(n, d, h, k),
                v_proj=(n, d, h, k),
                out_proj=(n, r, h, k, d),
            ),
            post_attn_norm=(n, d),
            gate_proj=(n, d, f),
            up_proj=(n, d, f),
            down_proj=(n, f, d),
        ),
        norm=(d,),
        lm_head=None if config.tied else (v, d),
    )
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, dtype),
        shapes,
        is_leaf=lambda node: type(node) is tuple,
    )


def random_params(seed: int, config: Config, dtype: Any = jnp.float32) -> Llama:
    """Random weights of variance 0.02 ** 2, made on the device; norms are one."""

    def make(path: Any, spec: jax.ShapeDtypeStruct, key: jax.Array) -> jax.Array:
        if "norm" in path[-1].name:
            return jnp.ones(spec.shape, dtype)
        return _uniform(key, spec.shape, dtype)

    shapes = param_shapes(config, dtype)
    structure = jax.tree.structure(shapes)
    # the device's own generator: quick to compile and to run
    keys = jax.random.split(jax.random.key(seed, impl="rbg"), structure.num_leaves)
    return jax.tree.map_with_path(make, shapes, jax.tree.unflatten(structure, keys))


@partial(jax.jit, static_argnums=(1, 2))
def _uniform(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    width = 0.02 * 3**0.5
    return jax.random.uniform(key, shape, dtype, -width, width)
