"""Text out of a small transformer: greedy with a key-value cache, and by beams."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs.program import Program

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 256, 64, 4, 2, 128


def weights() -> dict:
    rng = np.random.default_rng(0)

    def made(*shape):
        return jnp.asarray(rng.normal(0, shape[-2] ** -0.5, shape), "float32")

    return {
        "embed": made(VOCABULARY, WIDTH),
        "qkv": made(LAYERS, WIDTH, 3 * WIDTH),
        "out": made(LAYERS, WIDTH, WIDTH),
        "up": made(LAYERS, WIDTH, 4 * WIDTH),
        "down": made(LAYERS, 4 * WIDTH, WIDTH),
    }


def normed(x):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def greedy(batch: int):
    """A token a step: every layer appends to its cache and attends to all of it."""
    size = WIDTH // HEADS

    def run(w, first):
        def token(state, t):
            cache, last = state
            x = w["embed"][last]

            def layer(x, inputs):
                qkv, out, up, down, keys, values = inputs
                parts = (normed(x) @ qkv).reshape(batch, 3, HEADS, size)
                q, k, v = parts[:, 0], parts[:, 1], parts[:, 2]
                keys = lax.dynamic_update_slice(keys, k[:, None], (0, t, 0, 0))
                values = lax.dynamic_update_slice(values, v[:, None], (0, t, 0, 0))
                scores = jnp.einsum("bhd,bthd->bht", q, keys) * size**-0.5
                scores = jnp.where(jnp.arange(LENGTH) <= t, scores, -1e9)
                mixed = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores), values)
                x = x + mixed.reshape(batch, WIDTH) @ out
                x = x + jax.nn.gelu(normed(x) @ up) @ down
                return x, (keys, values)

            layers = w["qkv"], w["out"], w["up"], w["down"], *cache
            x, cache = lax.scan(layer, x, layers)
            last = jnp.argmax(normed(x) @ w["embed"].T, -1)
            return (cache, last), last

        empty = jnp.zeros((LAYERS, batch, LENGTH, HEADS, size))
        return lax.scan(token, ((empty, empty), first), jnp.arange(LENGTH))[1]

    return run, (weights(), jnp.arange(batch))


def beam_search():
    """Eight beams of a bigram model over 256 tokens."""
    beams = 8

    def run(logits):
        logs = jax.nn.log_softmax(logits)

        def step(state, t):
            tokens, scores = state
            last = tokens[:, t]
            every = scores[:, None] + logs[last]
            scores, best = lax.top_k(every.reshape(-1), beams)
            tokens = tokens[best // VOCABULARY].at[:, t + 1].set(best % VOCABULARY)
            return (tokens, scores), None

        tokens = jnp.zeros((beams, LENGTH + 1), jnp.int32)
        scores = jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)
        return lax.scan(step, (tokens, scores), jnp.arange(LENGTH))[0]

    rng = np.random.default_rng(0)
    logits = rng.normal(size=(VOCABULARY, VOCABULARY))
    return run, (jnp.asarray(logits, "float32"),)


PROGRAMS = [
    Program("decode/1", lambda: greedy(1), agree=0.3),
    Program("decode/8", lambda: greedy(8), agree=0.3),
    Program("beam search/8", beam_search),
]
