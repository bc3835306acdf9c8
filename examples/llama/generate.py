"""Prompts in, tokens out.  The decode loop is a scan, around the scan over layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import onescan
from examples.llama.cache import State, empty_state, slots_for, write
from examples.llama.config import Config
from examples.llama.model import Context, causal_context, decoder, logits_of
from examples.llama.params import Llama
from examples.llama.rotary import angles
from examples.llama.sampling import Sampler


class Decoding(NamedTuple):
    """The carry of the decode loop."""

    state: State
    token: jax.Array  # (B,), the newest, not yet in the cache
    done: jax.Array  # (B,), whether a sequence has ended
    key: jax.Array


@partial(jax.jit, static_argnames=("config", "sampler"), donate_argnames="state")
def prefill(
    params: Llama,
    tokens: jax.Array,
    token_mask: jax.Array,
    state: State,
    key: jax.Array,
    *,
    config: Config,
    sampler: Sampler = Sampler(),  # noqa: B008
) -> Decoding:
    """Read prompts (B, S), padded on the left, into an empty state."""
    seq, new = decoder(
        params.decoder,
        params.embedding[tokens],
        causal_context(config, token_mask),
        model_config=config,
    )
    state = write(state, new, token_mask)
    logits = logits_of(params, seq[:, -1:], config)[:, 0]
    token, key = sampler.draw(logits, key)
    return Decoding(state, token, _ends(token, config), key)


@partial(
    jax.jit,
    static_argnames=("steps", "config", "sampler", "unroll"),
    donate_argnames="start",
)
def decode(
    params: Llama,
    start: Decoding,
    *,
    steps: int,
    config: Config,
    sampler: Sampler = Sampler(),  # noqa: B008
    unroll: int = 1,
) -> tuple[Decoding, jax.Array]:
    """So many more tokens, (steps, B), in one loop."""

    def step(now: Decoding, _: None) -> tuple[Decoding, jax.Array]:
        logits, state = next_logits(params, now.state, now.token, config, unroll)
        token, key = sampler.draw(logits, now.key)
        token = jnp.where(now.done, now.token, token)
        return Decoding(state, token, now.done | _ends(token, config), key), token

    return onescan.scan(step, start, None, steps)


def next_logits(
    params: Llama, state: State, token: jax.Array, config: Config, unroll: int = 1
) -> tuple[jax.Array, State]:
    """The logits (B, V) after one more token (B,), and the state with it."""
    batch = token.shape[0]
    one = jnp.ones((batch, 1), bool)
    context = Context(*angles(config, state.position[:, None]), one[..., None])
    context = context._replace(old_mask=state.used)
    seq, new = decoder(
        params.decoder,
        params.embedding[token][:, None],
        context,
        model_config=config,
        cache=state.kv,
        unroll=unroll,
    )
    return logits_of(params, seq, config)[:, 0], write(state, new, one)


def generate(
    params: Llama,
    prompts: Sequence[Sequence[int]],
    *,
    config: Config,
    tokens: int,
    sampler: Sampler = Sampler(),  # noqa: B008
    key: jax.Array | None = None,
    chunk: int = 8,
) -> Iterator[np.ndarray]:
    """Stream up to so many tokens for each prompt, as arrays (B, n), chunk by chunk.

    It ends early when every sequence has ended; one that has ended repeats its end.
    """
    tokens_in, token_mask = pad_left(prompts)
    batch, size = tokens_in.shape
    steps = -(-(tokens - 1) // chunk) * chunk
    slots = slots_for(size + steps)
    state = empty_state(config, batch, slots, params.embedding.dtype)
    key = jax.random.key(0) if key is None else key
    options = {"config": config, "sampler": sampler}
    now = prefill(params, tokens_in, token_mask, state, key, **options)
    yield np.asarray(now.token)[:, None]
    for start in range(0, steps, chunk):
        if np.asarray(now.done).all():
            return
        now, found = decode(params, now, steps=chunk, **options)
        yield np.asarray(found).T[:, : tokens - 1 - start]


def pad_left(prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Prompts as one array (B, S), and which of its tokens are theirs."""
    if not prompts or not all(map(len, prompts)):
        raise ValueError("every prompt must have at least one token")
    size = max(map(len, prompts))
    tokens = np.zeros((len(prompts), size), np.int32)
    token_mask = np.zeros((len(prompts), size), bool)
    for row, prompt in enumerate(prompts):
        tokens[row, size - len(prompt) :] = prompt
        token_mask[row, size - len(prompt) :] = True
    return tokens, token_mask


def _ends(token: jax.Array, config: Config) -> Any:
    return jnp.isin(token, jnp.array(config.eos, jnp.int32))
