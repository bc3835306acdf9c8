"""What the body of the loop over layers sees, at full size and without the memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import onescan
from examples.llama.config import Config
from examples.llama.model import causal_context, decoder_block
from examples.llama.params import DecoderBlock, param_shapes
from onescan.layers import split_key


def layer_step(config: Config, positions: int) -> Any:
    """The loop body as one writes it without `scan_layers`: `(key, seq), block`."""
    context = causal_context(config, jnp.ones((1, positions), bool))

    def inner(state: tuple[Any, jax.Array], input_: DecoderBlock) -> Any:
        key, seq = state
        key, subkey = split_key(key)
        seq, _ = decoder_block(input_, seq, context, key=subkey, model_config=config)
        return (key, seq), None

    return inner


def explain_llama(config: Config, positions: int = 2048) -> Any:
    """The shapes of the loop, from shapes alone."""
    seq = jax.ShapeDtypeStruct((1, positions, config.model), jnp.float32)
    blocks = param_shapes(config).decoder
    return onescan.explain(layer_step(config, positions), (None, seq), blocks)
