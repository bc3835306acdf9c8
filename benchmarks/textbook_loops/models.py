"""Models of chance and of learning: samplers, filters, nets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import random
from jax.scipy.special import logsumexp

from textbook_loops.parts import INDEX, Loop, keys, numbers, whole


def gibbs(s, key):
    x, y = s
    a, b = random.split(key)
    x = 0.8 * y + 0.6 * random.normal(a)
    y = 0.8 * x + 0.6 * random.normal(b)
    return (x, y), jnp.stack([x, y])


def hamiltonian(x, key):
    potential = lambda q: 0.5 * q @ PRECISION @ q
    a, b = random.split(key)
    p = random.normal(a, x.shape)
    slope = jax.grad(potential)
    q, r = x, p - 0.05 * slope(x)
    for _ in range(5):
        q = q + 0.1 * r
        r = r - 0.1 * slope(q)
    r = r + 0.05 * slope(q)
    change = potential(x) + 0.5 * p @ p - potential(q) - 0.5 * r @ r
    x = jnp.where(jnp.log(random.uniform(b)) < change, q, x)
    return x, x


def langevin(x, key):
    x = x - 0.01 * jax.grad(lambda x: (x**4 - x**2).sum())(x)
    return x + 0.1 * random.normal(key, x.shape), x.mean()


def annealing(s, at):
    tour, length = s
    key, t = at
    i, j = random.randint(key, (2,), 0, 32)
    new = tour.at[i].set(tour[j]).at[j].set(tour[i])
    places = CITIES[new]
    long = jnp.linalg.norm(places - jnp.roll(places, 1, 0), axis=1).sum()
    take = (long < length) | (random.uniform(key) < jnp.exp((length - long) / t))
    return (jnp.where(take, new, tour), jnp.where(take, long, length)), length


def genetic(s, key):
    a, b, c = random.split(key, 3)
    fitness = -((s - TARGET) ** 2).sum(1)
    pairs = random.randint(a, (2, 64), 0, 64)
    parents = jnp.where(fitness[pairs[0]] > fitness[pairs[1]], pairs[0], pairs[1])
    mixed = jnp.where(random.bernoulli(b, 0.5, s.shape), s[parents], s[parents[::-1]])
    return mixed + 0.05 * random.normal(c, s.shape), fitness.max()


def evolution(m, key):
    drawn = random.normal(key, (32, 10))
    scores = -((m + 0.1 * drawn - TARGET) ** 2).sum(1)
    ranks = jnp.argsort(jnp.argsort(scores)) / 31 - 0.5
    return m + 0.1 * ranks @ drawn, scores.max()


def particles(s, at):
    key, seen = at
    a, b = random.split(key)
    s = 0.9 * s + 0.3 * random.normal(a, s.shape)
    weights = jax.nn.softmax(-0.5 * (seen - s) ** 2)
    s = s[random.categorical(b, jnp.log(weights), shape=s.shape)]
    return s, s.mean()


def ensemble_kalman(s, at):
    key, seen = at
    s = s @ MOVES + 0.1 * random.normal(key, s.shape)
    apart = s - s.mean(0)
    spread = apart.T @ apart / 31
    gain = spread[:, :1] / (spread[0, 0] + 0.5)
    return s + (seen - s[:, :1]) * gain.T, s.mean(0)


def forward_algorithm(a, seen):
    a = logsumexp(a[:, None] + JUMPS, axis=0) + SIGHTS[:, seen]
    return a, a


def viterbi(best, seen):
    ways = best[:, None] + JUMPS
    return ways.max(0) + SIGHTS[:, seen], ways.argmax(0)


def temporal_classes(a, logits):
    """Connectionist temporal classification: one frame."""
    p = jax.nn.log_softmax(logits)[LABELS]
    one = jnp.concatenate([jnp.full(1, -1e9), a[:-1]])
    two = jnp.where(SKIPS, jnp.concatenate([jnp.full(2, -1e9), a[:-2]]), -1e9)
    a = logsumexp(jnp.stack([a, one, two]), axis=0) + p
    return a, None


def mixture(s, _):
    means, widths, shares = s
    logs = (
        -0.5 * ((DATA[:, None] - means) / widths) ** 2
        - jnp.log(widths)
        + jnp.log(shares)
    )
    r = jax.nn.softmax(logs, axis=1)
    n = r.sum(0)
    means = (r * DATA[:, None]).sum(0) / n
    widths = jnp.sqrt((r * (DATA[:, None] - means) ** 2).sum(0) / n + 1e-3)
    return (means, widths, n / 300), logsumexp(logs, axis=1).mean()


def perceptron(w, at):
    x, y = at
    wrong = y * (x @ w) <= 0
    return w + jnp.where(wrong, y * x, 0), wrong


def two_layers(w, at):
    x, y = at
    loss = lambda w: ((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2).mean()
    value, g = jax.value_and_grad(loss)(w)
    return jax.tree.map(lambda w, g: w - 0.05 * g, w, g), value


def hopfield(s, i):
    return s.at[i].set(jnp.where(MEMORY[i] @ s >= 0, 1.0, -1.0)), None


def self_organising(w, x):
    best = ((w - x) ** 2).sum(1).argmin()
    near = jnp.exp(-0.5 * (jnp.arange(len(w)) - best) ** 2)
    return w + 0.1 * near[:, None] * (x - w), best


def echo_state(h, x):
    h = 0.7 * h + 0.3 * jnp.tanh(RESERVOIR @ h + INTO * x)
    return h, h[:8]


def gru(h, x):
    both = jnp.concatenate([h, x])
    z, r = jnp.split(jax.nn.sigmoid(both @ GATES), 2)
    new = jnp.tanh(jnp.concatenate([r * h, x]) @ CANDIDATE)
    return (1 - z) * h + z * new, h


def neural_ode(y, _):
    slope = lambda y: jnp.tanh(y @ FIRST) @ SECOND
    a = slope(y)
    b = slope(y + 0.05 * a)
    return y + 0.1 * b, y


def state_space(h, u):
    h = DECAY * h + INPUT * u
    return h, (h * OUTPUT).real.sum()


def linear_attention(s, at):
    q, k, v = at
    s = 0.95 * s + k[:, None] * v
    return s, q @ s


def spikes(s, x):
    v, last = s
    v = 0.9 * v + x + LINKS @ last
    out = jax.nn.sigmoid(10 * (v - 1))
    return (v * (1 - out), out), out.sum()


def bidder(s, key):
    """Thompson's choice between ten arms."""
    won, lost = s
    a, b = random.split(key)
    arm = random.beta(a, won + 1, lost + 1).argmax()
    hit = random.uniform(b) < CHANCES[arm]
    return (won.at[arm].add(hit), lost.at[arm].add(~hit)), hit


def queue(s, key):
    waiting, busy = s
    a, b = random.split(key)
    come = random.poisson(a, 0.8)
    go = (busy & random.bernoulli(b, 0.9)).astype(jnp.int32)
    waiting = jnp.maximum(waiting + come - go, 0)
    return (waiting, waiting > 0), waiting


def actor(s, key):
    """Cart and pole under a linear policy, with its score."""
    x, v, angle, turn, score = s
    p = jax.nn.sigmoid(0.5 * x + v + 10 * angle + 2 * turn)
    force = jnp.where(random.uniform(key) < p, 10.0, -10.0)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    pushed = (force + 0.05 * turn**2 * sine) / 1.1
    bent = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    fell = (jnp.abs(angle) > 0.2) | (jnp.abs(x) > 2.4)
    new = (
        x + 0.02 * v,
        v + 0.02 * (pushed - 0.05 * bent * cosine),
        angle + 0.02 * turn,
        turn + 0.02 * bent,
    )
    new = tuple(jnp.where(fell, 0.0, n) for n in new)
    return (*new, jnp.where(fell, 0.0, score + 1)), score


_half = numbers(8, 8)
PRECISION, CITIES, TARGET = (
    _half @ _half.T / 8 + jnp.eye(8),
    numbers(32, 2),
    numbers(10),
)
MOVES, JUMPS, SIGHTS = (
    0.5 * numbers(3, 3),
    jax.nn.log_softmax(numbers(16, 16)),
    numbers(16, 20),
)
LABELS = jnp.zeros(41, jnp.int32).at[1::2].set(whole(27, 20) + 1)
SKIPS = (jnp.arange(41) % 2 == 1) & (jnp.roll(LABELS, 2) != LABELS)
DATA, MEMORY, RESERVOIR = numbers(300), numbers(64, 64), 0.1 * numbers(100, 100)
INTO, GATES, CANDIDATE = numbers(100), 0.2 * numbers(24, 32), 0.2 * numbers(24, 16)
FIRST, SECOND = 0.3 * numbers(4, 32), 0.3 * numbers(32, 4)
DECAY = 0.9 * jnp.exp(1j * jnp.abs(numbers(32)))
INPUT, OUTPUT = numbers(32) + 0j, numbers(32) + 1j * numbers(32)
LINKS, CHANCES = 0.1 * numbers(50, 50), jax.nn.sigmoid(numbers(10))
TOUR = (jnp.arange(32), jnp.float32(1e9))

LOOPS: dict[str, Loop] = {
    "Gibbs": (gibbs, (jnp.float32(0), jnp.float32(0)), keys(1000), 1000),
    "Hamiltonian": (hamiltonian, numbers(8), keys(300), 300),
    "Langevin, 100": (langevin, numbers(100), keys(500), 500),
    "annealing": (annealing, TOUR, (keys(500), jnp.linspace(1, 0.01, 500)), 500),
    "genetic": (genetic, numbers(64, 10), keys(100), 100),
    "evolution": (evolution, jnp.zeros(10), keys(200), 200),
    "particles, 200": (particles, numbers(200), (keys(100), numbers(100)), 100),
    "ensemble": (ensemble_kalman, numbers(32, 3), (keys(200), numbers(200)), 200),
    "forward algorithm": (forward_algorithm, jnp.zeros(16), whole(20, 300), 300),
    "Viterbi": (viterbi, jnp.zeros(16), whole(20, 300), 300),
    "temporal classes": (
        temporal_classes,
        jnp.full(41, -1e3).at[0].set(0),
        numbers(100, 28),
        100,
    ),
    "mixture": (mixture, (numbers(4), jnp.ones(4), jnp.full(4, 0.25)), None, 100),
    "perceptron": (
        perceptron,
        jnp.zeros(10),
        (numbers(500, 10), jnp.sign(numbers(500))),
        500,
    ),
    "two layers": (
        two_layers,
        (0.3 * numbers(4, 16), 0.3 * numbers(16, 1)),
        (numbers(300, 8, 4), numbers(300, 8, 1)),
        300,
    ),
    "Hopfield": (hopfield, jnp.sign(numbers(64)), whole(64, 500), 500),
    "self-organising map": (self_organising, numbers(25, 3), numbers(500, 3), 500),
    "echo state": (echo_state, jnp.zeros(100), numbers(300), 300),
    "GRU, 16": (gru, jnp.zeros(16), numbers(500, 8), 500),
    "neural ODE": (neural_ode, numbers(16, 4), None, 200),
    "state space": (state_space, jnp.zeros(32) + 0j, numbers(1000), 1000),
    "linear attention": (
        linear_attention,
        jnp.zeros((16, 16)),
        tuple(numbers(300, 16) for _ in range(3)),
        300,
    ),
    "spikes": (spikes, (jnp.zeros(50), jnp.zeros(50)), numbers(300, 50), 300),
    "Thompson": (bidder, (jnp.zeros(10), jnp.zeros(10)), keys(100), 100),
    "queue": (queue, (INDEX, jnp.bool_(False)), keys(300), 300),
    "cart and pole": (
        actor,
        (*(jnp.float32(0.01),) * 4, jnp.float32(0)),
        keys(1000),
        1000,
    ),
}
