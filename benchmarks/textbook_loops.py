"""Loops as textbooks have them, and as a new user writes them: small, and plain.

None of them was chosen for an engine.  Each is ``(step, carry, xs, length)``.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

Loop = tuple[Any, Any, Any, int]
DRAWN = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return jnp.asarray(DRAWN.normal(size=shape).astype(np.float32))


def scalars(count: int, value: float = 0.0) -> tuple[Any, ...]:
    return (jnp.float32(value),) * count


def keys(count: int) -> Any:
    return random.split(random.PRNGKey(0), count)


# Physics


def gravity(s, _):
    x, v = s
    apart = x[None] - x[:, None]
    square = (apart**2).sum(-1) + 0.1
    v = v + 0.01 * (apart / (square * jnp.sqrt(square))[..., None]).sum(1)
    return (x + 0.01 * v, v), x


def lennard_jones(s, _):
    x, v = s
    apart, eye = x[None] - x[:, None], jnp.eye(len(x))
    square = (apart**2).sum(-1) + eye
    sixth = 1 / square**3
    push = (24 * (2 * sixth * sixth - sixth) / square)[..., None] * apart
    v = v - 1e-4 * (push * (1 - eye)[..., None]).sum(1)
    return (x + 1e-4 * v, v), None


def boids(s, _):
    x, v = s
    apart = x[None] - x[:, None]
    far = jnp.sqrt((apart**2).sum(-1) + 1e-3)
    near = (far < 1).astype(jnp.float32)
    count = near.sum(1, keepdims=True)
    to_others = (near[..., None] * apart).sum(1) / count
    along = (near @ v) / count - v
    away = -((apart / far[..., None] ** 2) * near[..., None]).sum(1)
    v = v + 0.01 * (to_others + along + away)
    v = v / jnp.linalg.norm(v, axis=1, keepdims=True)
    return (x + 0.1 * v, v), None


def double_pendulum(y, _):
    def slope(y):
        a, b, v, w = y
        d = a - b
        below = 2 - jnp.cos(2 * d)
        first = -3 * 9.8 * jnp.sin(a) - 9.8 * jnp.sin(a - 2 * b)
        first = first - 2 * jnp.sin(d) * (w**2 + v**2 * jnp.cos(d))
        second = 2 * v**2 + 2 * 9.8 * jnp.cos(a) + w**2 * jnp.cos(d)
        return jnp.stack([v, w, first / below, 2 * jnp.sin(d) * second / below])

    h = 0.01
    k1 = slope(y)
    k2 = slope(y + h / 2 * k1)
    k3 = slope(y + h / 2 * k2)
    k4 = slope(y + h * k3)
    y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y, y


def kuramoto(t, _):
    t = t + 0.01 * (1 + jnp.sin(t[None] - t[:, None]).mean(1))
    return t, jnp.cos(t).mean()


def lorenz(s, _):
    x, y, z = s
    dx, dy, dz = 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z
    return (x + 0.01 * dx, y + 0.01 * dy, z + 0.01 * dz), x


def lotka_volterra(s, _):
    x, y = s
    x, y = x + 0.01 * x * (1 - 0.5 * y), y + 0.01 * y * (0.3 * x - 1)
    return (x, y), jnp.stack([x, y])


def heat(u, _):
    return u + 0.1 * (jnp.roll(u, 1) + jnp.roll(u, -1) - 2 * u), None


def heat_on_a_grid(u, _):
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return u.at[1:-1, 1:-1].add(0.1 * (around - 4 * u[1:-1, 1:-1])), None


def wave(s, _):
    u, before = s
    after = 2 * u - before + 0.1 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))
    return (after, u), after[::8]


def life(g, _):
    places = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    n = sum(jnp.roll(g, place, (0, 1)) for place in places)
    return ((n == 3) | ((n == 2) & (g == 1))).astype(g.dtype), None


def neurons(s, x):
    v, trace = s
    v = v + 0.1 * (x - v)
    fires = v > 1
    return (jnp.where(fires, 0.0, v), trace * 0.9 + fires), fires


def epidemic(s, _):
    well, ill, past = s
    new, over = 0.3 * well * ill, 0.1 * ill
    return (well - 0.1 * new, ill + 0.1 * (new - over), past + 0.1 * over), ill


# Signals, money and chance


def average(c, x):
    c = 0.9 * c + 0.1 * x
    return c, c


def biquad(s, x):
    a, b = s
    y = 0.2 * x + a
    return (0.3 * x - 0.1 * y + b, 0.1 * x - 0.05 * y), y


def controller(s, wanted):
    x, total, before = s
    error = wanted - x
    total = total + error * 0.01
    push = 2 * error + 0.5 * total + 0.1 * (error - before) / 0.01
    return (x + 0.01 * (jnp.clip(push, -5, 5) - x), total, error), x


def ring(s, x):
    buffer, i = s
    buffer = buffer.at[i % 16].set(x)
    return (buffer, i + 1), buffer.mean()


def shifted(s, x):
    s = jnp.concatenate([s[1:], x[None]])
    return s, s @ TAPS


def histogram(h, x):
    i = jnp.clip((x * 10 + 50).astype(jnp.int32), 0, 99)
    return h.at[i].add(1), i


def drawdown(s, x):
    total, most, fallen = s
    total = total + x
    return (total, jnp.maximum(most, total), jnp.maximum(fallen, most - total)), fallen


def garch(s, e):
    last, v = s
    v = 0.1 + 0.1 * last**2 * v + 0.8 * v
    return (e, v), jnp.sqrt(v) * e


def prices(s, key):
    s = s * jnp.exp(-0.0005 + 0.03 * random.normal(key, s.shape))
    return s, s.mean()


def prices_with_key(s, _):
    key, x = s
    key, now = random.split(key)
    x = x * jnp.exp(-0.0005 + 0.03 * random.normal(now, x.shape))
    return (key, x), x.max()


def metropolis(s, key):
    x, log_p = s
    move, accept = random.split(key)
    new = x + 0.5 * random.normal(move, x.shape)
    log_q = -0.5 * (new**2).sum()
    taken = jnp.log(random.uniform(accept)) < log_q - log_p
    x = jnp.where(taken, new, x)
    return (x, jnp.where(taken, log_q, log_p)), x


# Optimisation and learning


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


TAPS, RATES = numbers(32), jnp.linspace(2.5, 4.0, 1000)
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
INDEX = jnp.int32(0)

LOOPS: dict[str, Loop] = {
    **{
        f"gravity, {n} bodies": (gravity, (numbers(n, 3), numbers(n, 3)), None, 1000)
        for n in (3, 8, 16)
    },
    **{
        f"Lennard-Jones, {n}": (
            *(lennard_jones, (3 * numbers(n, 2), numbers(n, 2)), None),
            1000,
        )
        for n in (8, 32)
    },
    "boids, 32": (boids, (numbers(32, 2), numbers(32, 2)), None, 500),
    "boids, 100": (boids, (numbers(100, 2), numbers(100, 2)), None, 100),
    "double pendulum": (double_pendulum, numbers(4), None, 1000),
    "double pendulum, 256": (
        *(lambda y, _: jax.vmap(lambda p: double_pendulum(p, None))(y),),
        *(numbers(256, 4), None, 300),
    ),
    "Kuramoto, 16": (kuramoto, numbers(16), None, 1000),
    "Kuramoto, 64": (kuramoto, numbers(64), None, 500),
    "Lorenz": (lorenz, scalars(3, 1.0), None, 1000),
    "Lotka-Volterra": (lotka_volterra, scalars(2, 1.5), None, 1000),
    "heat, 512": (heat, numbers(512), None, 1000),
    "heat, 64 x 64": (heat_on_a_grid, numbers(64, 64), None, 200),
    "wave, 256": (wave, (numbers(256), numbers(256)), None, 1000),
    "life, 64 x 64": (life, (numbers(64, 64) > 0).astype(jnp.int32), None, 200),
    "life, bytes": (life, (numbers(32, 32) > 0).astype(jnp.uint8), None, 500),
    "neurons, 100": (neurons, (numbers(100), numbers(100)), numbers(1000, 100), 1000),
    "epidemic, 50": (epidemic, (numbers(50) ** 2,) * 3, None, 1000),
    "average": (average, jnp.float32(0), numbers(1000), 1000),
    "average, 64": (average, numbers(64), numbers(1000, 64), 1000),
    "biquad": (biquad, scalars(2), numbers(1000), 1000),
    "biquad, 8": (biquad, (numbers(8), numbers(8)), numbers(1000, 8), 1000),
    "controller": (controller, scalars(3), numbers(1000), 1000),
    "ring buffer": (ring, (jnp.zeros(16), INDEX), numbers(1000), 1000),
    "filter of 32 taps": (shifted, jnp.zeros(32), numbers(1000), 1000),
    "histogram": (histogram, jnp.zeros(100), numbers(1000), 1000),
    "drawdown": (drawdown, scalars(3), numbers(1000), 1000),
    "GARCH": (garch, scalars(2, 1.0), numbers(1000), 1000),
    "prices, 1024": (prices, jnp.ones(1024), keys(250), 250),
    "prices, 16": (prices_with_key, (random.PRNGKey(0), jnp.ones(16)), None, 1000),
    "Metropolis": (metropolis, (numbers(5), jnp.float32(-1)), keys(1000), 1000),
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
