"""Tables that loops inside a loop fill, cell by cell, and rounds until they rest."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax, random

from textbook_loops.parts import INDEX, Loop, keys, numbers, whole


def common_subsequence(table, i):
    """A row of the table, cell by cell."""

    def cell(j, t):
        longer = t[i, j] + 1
        kept = jnp.maximum(t[i, j + 1], t[i + 1, j])
        same = LETTERS[i] == TEXT[j]
        return t.at[i + 1, j + 1].set(jnp.where(same, longer, kept))

    return lax.fori_loop(0, len(TEXT), cell, table), None


def soft_alignment(table, i):
    """The same with a soft minimum of real costs, which has a gradient."""

    def cell(j, t):
        near = jnp.stack([t[i, j], t[i, j + 1], t[i + 1, j]])
        return t.at[i + 1, j + 1].set(COSTS[i, j] - jax.nn.logsumexp(-near))

    return lax.fori_loop(0, len(COSTS), cell, table), None


def matrix_chain(table, length):
    """The least work to multiply matrices, for all chains of a length."""
    count = len(table)

    def start(i, t):
        def split(k, best):
            at = jnp.minimum(i + k + 1, count - 1), jnp.minimum(i + length, count - 1)
            work = SIZES[i] * SIZES[i + k + 1] * SIZES[i + length + 1]
            return jnp.minimum(
                best, jnp.where(k < length, t[i, i + k] + t[at] + work, 1e9)
            )

        least = lambda t: t.at[i, i + length].set(
            lax.fori_loop(0, count, split, jnp.float32(1e9))
        )
        return lax.cond(i + length < count, least, lambda t: t, t)

    return lax.fori_loop(0, count, start, table), None


def knapsack_by_cells(best, item):
    weight, value = item

    def cell(j, b):
        at = len(best) - 1 - j
        better = lambda b: b.at[at].max(b[at - weight] + value)
        return lax.cond(at >= weight, better, lambda b: b, b)

    return lax.fori_loop(0, len(best), cell, best), None


def shortest_paths_by_cells(d, k):
    count = len(d)
    cell = lambda i, j, d: d.at[i, j].min(d[i, k] + d[k, j])
    row = lambda i, d: lax.fori_loop(0, count, lambda j, d: cell(i, j, d), d)
    return lax.fori_loop(0, count, row, d), None


def product_by_cells(c, i):
    a, b = FACTORS
    term = lambda j, k, c: c.at[i, j].add(a[i, k] * b[k, j])
    column = lambda j, c: lax.fori_loop(0, len(b), lambda k, c: term(j, k, c), c)
    return lax.fori_loop(0, len(c), column, c), None


def relaxation_by_cells(u, _):
    """Gauss and Seidel's, each cell with what the ones before it became."""

    def cell(i, j, u):
        around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
        return u.at[i, j].set(around / 4)

    inner = lambda i, u: lax.fori_loop(1, len(u) - 1, lambda j, u: cell(i, j, u), u)
    return lax.fori_loop(1, len(u) - 1, inner, u), u[1].sum()


def heap(s, x):
    """A number put into a heap, and up until it is not smaller than its parent."""
    values, count = s

    def up(at):
        values, i = at
        above = (i - 1) // 2
        return values.at[i].set(values[above]).at[above].set(values[i]), above

    def wrong(at):
        values, i = at
        return (i > 0) & (values[i] < values[(i - 1) // 2])

    values, _ = lax.while_loop(wrong, up, (values.at[count].set(x), count))
    return (values, count + 1), values[0]


def union_find(parents, edge):
    up = lambda x: lax.while_loop(lambda x: parents[x] != x, lambda x: parents[x], x)
    a, b = up(edge[0]), up(edge[1])
    return parents.at[a].set(b), a != b


def marked_multiples(marked, i):
    """A sieve that marks the multiples of one number after the other."""
    mark = lambda j, m: m.at[i * i + j * i].set(True, mode="drop")
    all_of = lambda m: lax.fori_loop(0, 100, mark, m)
    return lax.cond(marked[i], lambda m: m, all_of, marked), None


def episodes(values, key):
    """Q-learning, an episode of fifty steps after the other."""

    def step(s, key):
        q, state = s
        explore, other, noise = random.split(key, 3)
        best = jnp.argmax(q[state])
        drawn = random.randint(other, (), 0, q.shape[1])
        action = jnp.where(random.uniform(explore) < 0.1, drawn, best)
        after = (state * 7 + action * 13 + random.randint(noise, (), 0, 3)) % len(q)
        reward = jnp.where(after == 42, 1.0, 0.0)
        error = reward + 0.9 * q[after].max() - q[state, action]
        return (q.at[state, action].add(0.1 * error), after), reward

    (values, _), rewards = lax.scan(step, (values, INDEX), random.split(key, 50))
    return values, rewards.sum()


def savings(value, income):
    """The value of wealth by rounds of its definition, for one income after another."""
    left = 1.02 * WEALTH[:, None] + income - WEALTH
    reward = jnp.where(left > 0, jnp.log(jnp.maximum(left, 1e-3)), -1e9)

    def again(s):
        _, change, count = s
        return (change > 1e-3) & (count < 40)

    def better(s):
        v, _, count = s
        new = jnp.max(reward + 0.9 * v, axis=1)
        return new, jnp.abs(new - v).max(), count + 1

    value, _, rounds = lax.while_loop(again, better, (value, jnp.float32(1), INDEX))
    return value, rounds


LETTERS, TEXT = whole(4, 100), whole(4, 100)
COSTS = jnp.abs(numbers(40, 40))
SIZES = jnp.abs(numbers(33)) + 1
FACTORS = numbers(32, 32), numbers(32, 32)
WEALTH = jnp.linspace(0.1, 5, 64)

LOOPS: dict[str, Loop] = {
    "common subsequence, cells": (
        *(common_subsequence, jnp.zeros((101, 101), jnp.int32)),
        *(jnp.arange(100), 100),
    ),
    "soft alignment, cells": (soft_alignment, jnp.zeros((41, 41)), jnp.arange(40), 40),
    "matrix chain": (matrix_chain, jnp.zeros((32, 32)), jnp.arange(1, 32), 31),
    "knapsack, cells": (
        *(knapsack_by_cells, jnp.zeros(500)),
        *((whole(50, 40), numbers(40) ** 2), 40),
    ),
    "shortest paths, cells": (
        *(shortest_paths_by_cells, jnp.abs(numbers(32, 32))),
        *(jnp.arange(32), 32),
    ),
    "product, cells": (product_by_cells, jnp.zeros((32, 32)), jnp.arange(32), 32),
    "relaxation, cells": (relaxation_by_cells, numbers(32, 32), None, 20),
    "heap": (heap, (jnp.full(256, jnp.inf), INDEX), numbers(256), 256),
    "union of sets": (union_find, jnp.arange(200), whole(200, 300, 2), 300),
    "multiples": (marked_multiples, jnp.zeros(5000, bool), jnp.arange(2, 70), 68),
    "episodes": (episodes, jnp.zeros((100, 4)), keys(20), 20),
    "savings": (savings, jnp.zeros(64), jnp.abs(numbers(20)), 20),
}
