"""A stack of transformer decoder blocks, run as one scan over layers.

The blocks of a decoder such as Llama all have the same shape, so their parameters
can be stacked: one `DecoderBlock` whose every array has a leading axis of layers.
`scan(inner, (key, seq), params)` then runs through the layers, and inside `inner`
each array has lost that axis: the body sees the parameters of one block.  The
program is compiled for one block, however many there are.

The carry is the sequence, together with a random key for dropout.  The key may be
None (no dropout): `split_key_nullable` passes that through, and because None is an
empty pytree the same loop serves both.

Run it with `python examples/decoder_stack.py`.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import onescan


class Config(NamedTuple):
    layers: int = 4
    model: int = 64  # D, the width of the residual stream
    repeats: int = 2  # R, query heads for each key/value head
    kv_heads: int = 2  # H
    head: int = 16  # K, the width of a head
    hidden: int = 128  # F, the width of the feed-forward part
    dropout: float = 0.1


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


def param_shapes(config):
    """The shapes of all blocks together, for real arrays or for `explain` alone."""
    n, d, f = config.layers, config.model, config.hidden
    r, h, k = config.repeats, config.kv_heads, config.head
    shapes = DecoderBlock(
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
    )
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
        shapes,
        is_leaf=lambda node: type(node) is tuple,
    )


def init_params(seed, config):
    draw = np.random.default_rng(seed).standard_normal

    def init(spec):
        is_norm = len(spec.shape) == 2
        array = np.ones(spec.shape) if is_norm else 0.1 * draw(spec.shape)
        return jnp.asarray(array, spec.dtype)

    return jax.tree.map(init, param_shapes(config))


def rms_norm(x, scale):
    return scale * x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def rotary(x):
    """Turn each pair of features by an angle that grows with the position."""
    positions, half = x.shape[1], x.shape[-1] // 2
    frequencies = 10000.0 ** (-jnp.arange(half) / half)
    angles = jnp.arange(positions)[:, None] * frequencies  # (positions, half)
    angles = angles.reshape(positions, *[1] * (x.ndim - 3), half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def attention(params, x, attn_mask):
    """Grouped-query attention: R query heads share each of the H key/value heads."""
    q = rotary(jnp.einsum("bsd,drhk->bsrhk", x, params.q_proj))
    k = rotary(jnp.einsum("bsd,dhk->bshk", x, params.k_proj))
    v = jnp.einsum("bsd,dhk->bshk", x, params.v_proj)
    scores = jnp.einsum("bsrhk,bthk->brhst", q, k) / jnp.sqrt(q.shape[-1])
    weights = jax.nn.softmax(jnp.where(attn_mask, scores, -jnp.inf))
    mixed = jnp.einsum("brhst,bthk->bsrhk", weights, v)
    return jnp.einsum("bsrhk,rhkd->bsd", mixed, params.out_proj)


def dropout(x, key, rate):
    if key is None:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def decoder_block(params, seq, attn_mask, *, key, model_config):
    attn_key, mlp_key = split_key_nullable(key)
    x = rms_norm(seq, params.input_norm)
    x = attention(params.attention, x, attn_mask)
    seq = seq + dropout(x, attn_key, model_config.dropout)

    x = rms_norm(seq, params.post_attn_norm)
    x = (jax.nn.silu(x @ params.gate_proj) * (x @ params.up_proj)) @ params.down_proj
    return seq + dropout(x, mlp_key, model_config.dropout)


def split_key_nullable(key):
    """Two keys from one, or two times None."""
    return (None, None) if key is None else tuple(jax.random.split(key))


def layer_step(attn_mask, model_config):
    """The body of the loop over layers: `((key, seq), block) -> ((key, seq), None)`."""

    def inner(state, input_):
        key, seq = state
        key, subkey = split_key_nullable(key)
        seq = decoder_block(
            input_, seq, attn_mask, key=subkey, model_config=model_config
        )
        return (key, seq), None

    return inner


def causal_mask(positions):
    return jnp.tril(jnp.ones((positions, positions), bool))


@partial(jax.jit, static_argnames="model_config")
def decoder(params, seq, *, key, model_config):
    """All layers, as one loop."""
    inner = layer_step(causal_mask(seq.shape[1]), model_config)
    (key, seq), _ = onescan.scan(inner, (key, seq), params)
    return seq


@partial(jax.jit, static_argnames="model_config")
def unrolled_decoder(params, seq, *, key, model_config):
    """The same as a Python loop: the program grows with the number of layers."""
    inner = layer_step(causal_mask(seq.shape[1]), model_config)
    state = (key, seq)
    for layer in range(model_config.layers):
        block = jax.tree.map(lambda leaf: leaf[layer], params)
        state, _ = inner(state, block)
    return state[1]


LLAMA_7B = Config(layers=32, model=4096, repeats=1, kv_heads=32, head=128, hidden=11008)


def explain_llama(config=LLAMA_7B, batch=1, positions=2048):
    """What the body sees at full size, from shapes alone: no memory is needed."""
    seq = jax.ShapeDtypeStruct((batch, positions, config.model), jnp.float32)
    inner = layer_step(causal_mask(positions), config)
    return onescan.explain(inner, (None, seq), param_shapes(config))


def main():
    config = Config()
    seq_key, key = jax.random.split(jax.random.key(0))
    params = init_params(0, config)
    seq = jax.random.normal(seq_key, (2, 10, config.model))

    for name, maybe_key in (("without dropout", None), ("with dropout", key)):
        one = decoder(params, seq, key=maybe_key, model_config=config)
        other = unrolled_decoder(params, seq, key=maybe_key, model_config=config)
        worst = jnp.max(jnp.abs(one - other))
        print(f"{config.layers} layers {name}: scan and unrolled differ by {worst:.1e}")

    print("\nThe same loop at the size of Llama 7B, from shapes alone:\n")
    print(explain_llama())


if __name__ == "__main__":
    main()
