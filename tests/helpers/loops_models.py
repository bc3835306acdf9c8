"""Loops that people write: dynamics, filters, learning."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from table import Problem, case, normal


@case()
def logistic_map(rng):
    def f(x, _):
        x = 3.7 * x * (1.0 - x)
        return x, x

    return Problem(f, jnp.float32(rng.uniform(0.2, 0.8)), None, {"length": 9})


@case()
def discounted_returns(rng):
    def f(value, reward):
        value = reward + 0.9 * value
        return value, value

    return Problem(f, jnp.float32(0), normal(rng, 7), {"reverse": True})


@case()
def advantages(rng):
    def f(advantage, x):
        keep = 1.0 - x["done"].astype(jnp.float32)
        delta = x["reward"] + 0.99 * keep * x["next_value"] - x["value"]
        advantage = delta + 0.94 * keep * advantage
        return advantage, advantage

    xs = {name: normal(rng, 6, 4) for name in ("reward", "value", "next_value")}
    xs["done"] = rng.random((6, 4)) < 0.2
    return Problem(f, jnp.zeros(4), xs, {"reverse": True})


@case(rounding=4)
def lorenz_ensemble(rng):
    def slope(s):
        x, y, z = s[..., 0], s[..., 1], s[..., 2]
        return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8 / 3 * z], -1)

    def f(s, _):
        h = 0.01
        k1 = slope(s)
        k2 = slope(s + h / 2 * k1)
        k3 = slope(s + h / 2 * k2)
        k4 = slope(s + h * k3)
        s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return s, s

    return Problem(f, normal(rng, 5, 3), None, {"length": 6})


@case(rounding=8)
def kalman_filter(rng):
    transition = jnp.eye(3) + normal(rng, 3, 3, scale=0.1)
    observe = normal(rng, 2, 3)

    def f(belief, z):
        mean, cov = belief
        mean, cov = (
            transition @ mean,
            transition @ cov @ transition.T + 0.1 * jnp.eye(3),
        )
        s = observe @ cov @ observe.T + 0.5 * jnp.eye(2)
        det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / det
        gain = cov @ observe.T @ inverse
        mean = mean + gain @ (z - observe @ mean)
        cov = cov - gain @ observe @ cov
        return (mean, cov), mean

    return Problem(f, (jnp.zeros(3), jnp.eye(3)), normal(rng, 6, 2))


@case()
def hmm_forward(rng):
    log_transition = jax.nn.log_softmax(normal(rng, 4, 4), axis=1)

    def f(alpha, log_emission):
        alpha = jax.nn.logsumexp(alpha[:, None] + log_transition, axis=0) + log_emission
        return alpha, jnp.max(alpha)

    return Problem(f, jnp.log(jnp.full(4, 0.25)), normal(rng, 6, 4))


@case(differentiable=False)
def viterbi(rng):
    log_transition = normal(rng, 5, 5)

    def f(score, log_emission):
        through = score[:, None] + log_transition
        return through.max(0) + log_emission, through.argmax(0)

    return Problem(f, jnp.zeros(5), normal(rng, 6, 5))


@case(rounding=2)
def gru(rng):
    wx, wh, b = (
        normal(rng, 3, 12, scale=0.4),
        normal(rng, 4, 12, scale=0.4),
        normal(rng, 12),
    )

    def f(h, x):
        r, z, n = jnp.split(x @ wx + b, 3, axis=-1)
        hr, hz, hn = jnp.split(h @ wh, 3, axis=-1)
        r, z = jax.nn.sigmoid(r + hr), jax.nn.sigmoid(z + hz)
        h = (1 - z) * jnp.tanh(n + r * hn) + z * h
        return h, h

    return Problem(f, jnp.zeros((2, 4)), normal(rng, 5, 2, 3))


class LSTMState(NamedTuple):
    h: Any
    c: Any


@case(rounding=2)
def lstm(rng):
    w, b = normal(rng, 7, 16, scale=0.4), normal(rng, 16)

    def f(state, x):
        i, g, o, forget = jnp.split(jnp.concatenate([x, state.h]) @ w + b, 4)
        c = jax.nn.sigmoid(forget + 1) * state.c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return LSTMState(h, c), h

    return Problem(f, LSTMState(jnp.zeros(4), jnp.zeros(4)), normal(rng, 5, 3))


@case()
def autoregressive_filter(rng):
    weights = jnp.array([0.5, -0.2, 0.1], jnp.float32)

    def f(past, noise):
        value = weights @ past + noise
        return jnp.concatenate([value[None], past[:-1]]), value

    return Problem(f, normal(rng, 3), normal(rng, 8))


@case()
def heat_equation(rng):
    def f(u, _):
        padded = jnp.pad(u, 1, mode="edge")
        u = u + 0.2 * (padded[2:] - 2 * u + padded[:-2])
        return u, u[::3]

    return Problem(f, normal(rng, 10), None, {"length": 6})


@case(rounding=4)
def three_bodies(rng):
    """Each coordinate its own carry: twelve scalars."""
    mass = (1.0, 0.8, 1.2)

    def f(state, _):
        position = [(state[2 * i], state[2 * i + 1]) for i in range(3)]
        velocity = list(state[6:])
        for i in range(3):
            for j in range(3):
                if i != j:
                    dx = position[j][0] - position[i][0]
                    dy = position[j][1] - position[i][1]
                    pull = 0.01 * mass[j] / (dx * dx + dy * dy + 0.1) ** 1.5
                    velocity[2 * i] = velocity[2 * i] + pull * dx
                    velocity[2 * i + 1] = velocity[2 * i + 1] + pull * dy
        moved = [p + 0.01 * v for p, v in zip(state[:6], velocity, strict=True)]
        return (*moved, *velocity), moved[0]

    return Problem(f, tuple(normal(rng, 12)), None, {"length": 4})


@case()
def gradient_descent(rng):
    """A training loop: the body takes a gradient."""

    def loss(params, batch):
        hidden = jnp.tanh(batch["x"] @ params["w"] + params["b"])
        return jnp.mean((hidden.sum(-1) - batch["y"]) ** 2)

    def f(params, batch):
        value, slope = jax.value_and_grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), value

    params = {"w": normal(rng, 3, 4, scale=0.5), "b": jnp.zeros(4)}
    return Problem(f, params, {"x": normal(rng, 5, 6, 3), "y": normal(rng, 5, 6)})


class Attention(NamedTuple):
    q_proj: Any
    k_proj: Any
    v_proj: Any
    out_proj: Any


class DecoderBlock(NamedTuple):
    norm: Any
    attention: Attention
    up_proj: Any
    down_proj: Any


@case(rounding=8)
def decoder_stack(rng):
    """Layers as steps: the parameters of all layers are xs."""
    causal = jnp.tril(jnp.ones((3, 3), bool))

    def f(seq, layer):
        x = seq * jax.lax.rsqrt(jnp.mean(seq**2, -1, keepdims=True) + 1e-5) * layer.norm
        q, k, v = (
            jnp.einsum("sm,mhd->hsd", x, w)
            for w in (
                layer.attention.q_proj,
                layer.attention.k_proj,
                layer.attention.v_proj,
            )
        )
        scores = jnp.where(causal, jnp.einsum("hsd,htd->hst", q, k), -1e9)
        mixed = jnp.einsum("hst,htd->hsd", jax.nn.softmax(scores), v)
        seq = seq + jnp.einsum("hsd,hdm->sm", mixed, layer.attention.out_proj)
        return seq + jax.nn.silu(seq @ layer.up_proj) @ layer.down_proj, None

    def weight(*shape):
        return normal(rng, 3, *shape, scale=0.3)

    projections = [weight(4, 2, 2) for _ in range(3)]
    layers = DecoderBlock(
        1 + weight(4),
        Attention(*projections, weight(2, 2, 4)),
        weight(4, 6),
        weight(6, 4),
    )
    return Problem(f, normal(rng, 3, 4), layers)


@case()
def random_walk_typed_key(rng):
    def f(state, step):
        key, position = state
        key, now = jax.random.split(key)
        position = position + step * jax.random.normal(now, position.shape)
        return (key, position), position

    key = jax.random.key(int(rng.integers(1000)))
    return Problem(f, (key, jnp.zeros(3)), normal(rng, 5))


@case(differentiable=False)
def random_walk_raw_key(rng):
    def f(state, _):
        key, position = state
        key, now = jax.random.split(key)
        position = position + jax.random.randint(now, (3,), -1, 2)
        return (key, position), (key, position)

    key = jax.random.PRNGKey(int(rng.integers(1000)))
    return Problem(f, (key, jnp.zeros(3, int)), None, {"length": 5})


@case(differentiable=False)
def sampled_policy(rng):
    """A rollout: act by a sampled argmax, with one key per step in xs."""
    weights = normal(rng, 4, 3)

    def f(state, key):
        logits = state @ weights
        action = jnp.argmax(logits + jax.random.gumbel(key, logits.shape))
        state = 0.9 * state + 0.1 * jax.nn.one_hot(action, 4)
        return state, (action, state.sum() > 0)

    keys = jax.random.split(jax.random.key(int(rng.integers(1000))), 6)
    return Problem(f, normal(rng, 4), keys)
