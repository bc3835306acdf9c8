"""Optimisation, control and learning."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import random

from textbook_loops.parts import INDEX, Loop, keys, numbers


def power(v, _):
    v = MATRIX @ v
    return v / jnp.linalg.norm(v), None


def conjugate_gradients(s, _):
    x, r, p, square = s
    q = MATRIX @ p
    a = square / (p @ q)
    r = r - a * q
    new = r @ r
    return (x + a * p, r, r + new / square * p, new), new


def newton(x, _):
    return x - (x**3 - 2 * x - 5) / (3 * x**2 - 2), None


def logistic_map(x, _):
    return RATES * x * (1 - x), None


def logistic_regression(w, _):
    p = jax.nn.sigmoid(-LABELS * (POINTS @ w))
    return w + 0.1 * ((LABELS * p) @ POINTS) / 200, p.mean()


def adam(s, _):
    x, m, v, t = s
    loss = lambda x: ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()
    g, t = jax.grad(loss)(x), t + 1
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    root = jnp.sqrt(v / (1 - 0.999**t)) + 1e-8
    return (x - 0.01 * (m / (1 - 0.9**t)) / root, m, v, t), None


def means(c, _):
    far = ((PLANE[:, None] - c[None]) ** 2).sum(-1)
    own = jax.nn.one_hot(far.argmin(1), 8)
    return (own.T @ PLANE) / (own.sum(0)[:, None] + 1e-6), far.min(1).mean()


def swarm(s, key):
    x, v, best, least = s
    a, b = random.split(key)
    f = (x**2).sum(1)
    better = f < least
    best, least = jnp.where(better[:, None], x, best), jnp.where(better, f, least)
    own, all_ = random.uniform(a, x.shape), random.uniform(b, x.shape)
    v = 0.7 * v + 1.4 * own * (best - x) + 1.4 * all_ * (best[least.argmin()] - x)
    return (x + v, v, best, least), least.min()


def value_iteration(v, _):
    return (REWARDS + 0.9 * jnp.einsum("asn,n->as", CHANCES, v)).max(0), None


def q_learning(s, key):
    table, at = s
    a, b = random.split(key)
    act = jnp.where(
        random.uniform(a) < 0.1, random.randint(b, (), 0, 4), table[at].argmax()
    )
    to = (at * 7 + act * 3 + 1) % 25
    reward = (to == 24).astype(jnp.float32)
    change = 0.1 * (reward + 0.9 * table[to].max() - table[at, act])
    return (table.at[at, act].add(change), to), reward


def bandit(s, key):
    count, total, t = s
    bonus = jnp.sqrt(2 * jnp.log(t + 1) / jnp.maximum(count, 1e-3))
    arm = (total / jnp.maximum(count, 1) + bonus).argmax()
    reward = 0.05 * arm + 0.1 * random.normal(key)
    return (count.at[arm].add(1), total.at[arm].add(reward), t + 1), reward


def riccati(p, _):
    gain = jnp.linalg.solve(jnp.eye(2) + ACTS.T @ p @ ACTS, ACTS.T @ p @ MOVES)
    return jnp.eye(4) + MOVES.T @ p @ (MOVES - ACTS @ gain), gain


def kalman(s, y):
    m, p = s
    m, p = MOVES @ m, MOVES @ p @ MOVES.T + 0.1 * jnp.eye(4)
    seen = ACTS.T @ p @ ACTS + jnp.eye(2)
    gain = jnp.linalg.solve(seen, ACTS.T @ p).T
    m = m + gain @ (y - ACTS.T @ m)
    return (m, p - gain @ ACTS.T @ p), m


def rnn(h, x):
    h = jnp.tanh(h @ WEIGHTS + x @ INPUTS)
    return h, h


def lstm(s, x):
    h, c = s
    i, f, g, o = jnp.split(jnp.concatenate([h, x]) @ GATES, 4)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def attention(s, x):
    k, v, i = s
    k, v = k.at[i].set(x[:8]), v.at[i].set(x[8:])
    scores = jnp.where(jnp.arange(64) <= i, k @ x[:8], -1e9)
    return (k, v, i + 1), jax.nn.softmax(scores) @ v


RATES = jnp.linspace(2.5, 4.0, 1000)
_half = numbers(32, 32)
MATRIX, RIGHT = _half @ _half.T / 32 + jnp.eye(32), numbers(32)
POINTS, LABELS, PLANE = numbers(200, 5), jnp.sign(numbers(200)), numbers(500, 2)
CHANCES, REWARDS = jax.nn.softmax(numbers(4, 30, 30)), numbers(4, 30)
MOVES, ACTS = 0.3 * numbers(4, 4), numbers(4, 2)
WEIGHTS, INPUTS, GATES = (
    0.3 * numbers(16, 16),
    0.3 * numbers(8, 16),
    0.2 * numbers(24, 64),
)

LOOPS: dict[str, Loop] = {
    "power iteration": (power, numbers(32), None, 1000),
    "conjugate gradients": (
        *(conjugate_gradients, (jnp.zeros(32), RIGHT, RIGHT, RIGHT @ RIGHT)),
        *(None, 200),
    ),
    "Newton, 1000": (newton, numbers(1000) + 3, None, 100),
    "logistic map, 1000": (logistic_map, jnp.abs(numbers(1000)) % 1, None, 1000),
    "logistic regression": (logistic_regression, numbers(5), None, 500),
    "Adam": (
        *(adam, (numbers(10), jnp.zeros(10), jnp.zeros(10), jnp.float32(0))),
        *(None, 1000),
    ),
    "k-means": (means, PLANE[:8], None, 100),
    "particle swarm": (
        *(swarm, (*(numbers(30, 5) for _ in range(3)), jnp.full(30, 1e9))),
        *(keys(300), 300),
    ),
    "value iteration": (value_iteration, jnp.zeros(30), None, 500),
    "Q-learning": (q_learning, (jnp.zeros((25, 4)), INDEX), keys(1000), 1000),
    "bandit": (
        *(bandit, (jnp.zeros(10), jnp.zeros(10), jnp.float32(0)), keys(1000)),
        1000,
    ),
    "Riccati": (riccati, jnp.eye(4), None, 300),
    "Kalman": (kalman, (numbers(4), jnp.eye(4)), numbers(500, 2), 500),
    "RNN, 16": (rnn, numbers(16), numbers(1000, 8), 1000),
    "RNN, 32 x 16": (rnn, numbers(32, 16), numbers(200, 32, 8), 200),
    "LSTM, 16": (lstm, (numbers(16), numbers(16)), numbers(1000, 8), 1000),
    "attention": (
        *(attention, (jnp.zeros((64, 8)), jnp.zeros((64, 8)), INDEX)),
        *(numbers(64, 16), 64),
    ),
}
