"""The loss of next tokens, with a remat policy for the layers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from examples.llama.config import Config
from examples.llama.model import forward
from examples.llama.params import Llama


def loss(
    params: Llama,
    tokens: jax.Array,
    token_mask: jax.Array | None = None,
    *,
    config: Config,
    key: Any = None,
    remat: Any = None,
) -> jax.Array:
    """The mean cross entropy of each token (B, S) given those before it.

    With a key there is dropout. `remat` says what layers keep for the gradient, as
    `onescan.layers.scan_layers` takes it.
    """
    if token_mask is None:
        token_mask = jnp.ones(tokens.shape, bool)
    logits = forward(params, tokens, token_mask, config=config, key=key, remat=remat)[
        :, :-1
    ]
    chosen = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
    surprise = jax.nn.logsumexp(logits, axis=-1) - chosen
    counted = token_mask[:, 1:] & token_mask[:, :-1]
    return jnp.sum(jnp.where(counted, surprise, 0)) / jnp.sum(counted)
