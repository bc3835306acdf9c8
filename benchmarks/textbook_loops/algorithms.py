"""Algorithms: texts, graphs, bits, tables and matrices."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from textbook_loops.parts import INDEX, Loop, numbers, whole


def edit_distance(row, letter):
    """One row of Levenshtein's table; each cell waits for the one before it."""
    i = row[0] + 1

    def cell(left, at):
        above, diagonal, other = at
        new = jnp.minimum(jnp.minimum(left, above) + 1, diagonal + (letter != other))
        return new, new

    _, new = lax.scan(cell, i, (row[1:], row[:-1], TEXT))
    return jnp.concatenate([i[None], new]), None


def edit_distance_by_minimum(row, letter):
    """The same with the cells of a row at once."""
    cost = jnp.minimum(row[1:] + 1, row[:-1] + (letter != TEXT))
    cost = jnp.concatenate([row[:1] + 1, cost])
    steps = jnp.arange(len(row))
    return lax.cummin(cost - steps) + steps, None


def time_warping(row, x):
    cost = jnp.abs(x - SIGNAL)
    before = jnp.concatenate([jnp.full(1, 1e9), row[:-1]])
    least = jnp.minimum(row, before)

    def cell(left, at):
        new = at[0] + jnp.minimum(left, at[1])
        return new, new

    _, new = lax.scan(cell, jnp.float32(1e9), (cost, least))
    return new, new[-1]


def knapsack(best, item):
    weight, value = item
    at = jnp.arange(len(best))
    taken = jnp.where(at >= weight, best[jnp.maximum(at - weight, 0)] + value, 0)
    return jnp.maximum(best, taken), None


def longest_rise(s, x):
    lengths, values, i = s
    length = 1 + jnp.max(jnp.where(values < x, lengths, 0))
    return (lengths.at[i].set(length), values.at[i].set(x), i + 1), length


def floyd_warshall(d, k):
    return jnp.minimum(d, d[:, k, None] + d[k, None, :]), None


def bellman_ford(d, _):
    start, end = EDGES
    return d.at[end].min(d[start] + LENGTHS), None


def page_rank(p, _):
    start, end = EDGES
    share = p[start] / OUT[start]
    return 0.15 / len(p) + 0.85 * jnp.zeros_like(p).at[end].add(share), None


def breadth_first(s, _):
    seen, front = s
    front = (LINKS @ front > 0) & (seen == 0)
    return (jnp.where(front, 1, seen), front.astype(jnp.float32)), front.sum()


def checksum(c, byte):
    c = c ^ byte
    for _ in range(8):
        c = jnp.where(c & 1, (c >> 1) ^ jnp.uint32(0xEDB88320), c >> 1)
    return c, None


def hashed(h, x):
    h = (h ^ x) * jnp.uint32(16777619)
    h = h ^ (h >> 15)
    return h, h & 1023


def xorshift(s, _):
    s = s ^ (s << 13)
    s = s ^ (s >> 17)
    s = s ^ (s << 5)
    return s, s


def rule_110(cells, _):
    left, right = jnp.roll(cells, 1), jnp.roll(cells, -1)
    return (110 >> (left * 4 + cells * 2 + right)) & 1, cells


def stack_machine(s, op):
    """Numbers are pushed, and negative codes add or multiply the upper two."""
    stack, top = s
    push = lambda: (stack.at[top].set(op.astype(jnp.float32)), top + 1)
    add = lambda: (stack.at[top - 2].add(stack[top - 1]), top - 1)
    multiply = lambda: (stack.at[top - 2].multiply(stack[top - 1] * 0.1), top - 1)
    which = jnp.where(top < 2, 0, jnp.where(top > 14, 1, op % 3))
    stack, top = lax.switch(which, [push, add, multiply])
    return (stack, top), stack[0]


def insertion(row, x):
    at = jnp.searchsorted(row, x)
    i = jnp.arange(len(row))
    moved = jnp.where(i <= at, row, jnp.roll(row, 1))
    return jnp.where(i == at, x, moved), at


def sorted_window(s, x):
    s = jnp.concatenate([s[1:], x[None]])
    return s, jnp.sort(s)[4]


def elimination(a, k):
    """Gauss: one column of a matrix with the right side in its last column."""
    rows = jnp.arange(len(a))
    factors = jnp.where(rows > k, a[:, k] / a[k, k], 0)
    return a - factors[:, None] * a[k], None


def gauss_seidel(x, _):
    def row(x, i):
        a = SYSTEM[i]
        return x.at[i].set((RIGHT[i] - a @ x + a[i] * x[i]) / a[i]), None

    return lax.scan(row, x, jnp.arange(len(x)))[0], None


def jacobi(x, _):
    diagonal = jnp.diagonal(SYSTEM)
    return (RIGHT - SYSTEM @ x + diagonal * x) / diagonal, None


def horner(s, coefficient):
    y, slope = s
    return (y * POINTS + coefficient, slope * POINTS + y), None


def continued_fraction(x, a):
    return 1 / (a + x), None


def primes(sieve, i):
    n = jnp.arange(len(sieve))
    off = (n % i == 0) & (n > i)
    return jnp.where(off & sieve[i], False, sieve), None


def gcd(s, _):
    a, b = s
    return (jnp.where(b > 0, b, a), jnp.where(b > 0, a % jnp.maximum(b, 1), 0)), None


def fibonacci(s, _):
    a, b = s
    return (b, a + b), a


def polynomial_product(s, k):
    return s + A[k] * jnp.roll(B, k), None


def permuted(p, _):
    return p[PERMUTATION], p[0]


def union(labels, edge):
    a, b = labels[edge[0]], labels[edge[1]]
    return jnp.where(labels == jnp.maximum(a, b), jnp.minimum(a, b), labels), None


TEXT, LETTERS, SIGNAL = whole(4, 100), whole(4, 100), numbers(100)
EDGES, LENGTHS = whole(64, 2, 400), jnp.abs(numbers(400))
OUT = jnp.zeros(64).at[EDGES[0]].add(1.0)
LINKS = jnp.zeros((64, 64)).at[EDGES[1], EDGES[0]].set(1.0)
SYSTEM, RIGHT, POINTS = numbers(16, 16) + 16 * jnp.eye(16), numbers(16), numbers(500)
A, B, PERMUTATION = numbers(64), numbers(64), jnp.argsort(numbers(128))
DISTANCES = jnp.abs(numbers(64, 64))

LOOPS: dict[str, Loop] = {
    "edit distance": (edit_distance, jnp.arange(101), LETTERS, 100),
    "edit distance, rows": (edit_distance_by_minimum, jnp.arange(101), LETTERS, 100),
    "time warping": (time_warping, SIGNAL, numbers(100), 100),
    "knapsack": (knapsack, jnp.zeros(500), (whole(50, 100), numbers(100) ** 2), 100),
    "longest rise": (
        *(longest_rise, (jnp.zeros(200), jnp.full(200, 1e9), INDEX)),
        *(numbers(200), 200),
    ),
    "Floyd-Warshall": (floyd_warshall, DISTANCES, jnp.arange(64), 64),
    "Bellman-Ford": (bellman_ford, jnp.full(64, 1e9).at[0].set(0), None, 64),
    "page rank": (page_rank, jnp.full(64, 1 / 64), None, 200),
    "breadth first": (
        *(breadth_first, (jnp.zeros(64).at[0].set(1), jnp.zeros(64).at[0].set(1))),
        *(None, 64),
    ),
    "checksum": (
        checksum,
        jnp.uint32(2**32 - 1),
        whole(256, 1000).view("uint32"),
        1000,
    ),
    "hash": (hashed, jnp.uint32(2166136261), whole(256, 1000).view("uint32"), 1000),
    "xorshift": (xorshift, jnp.uint32(7), None, 1000),
    "xorshift, 256": (xorshift, whole(2**30, 256).view("uint32"), None, 1000),
    "rule 110": (rule_110, whole(2, 256), None, 256),
    "stack machine": (stack_machine, (jnp.zeros(16), INDEX), whole(9, 1000), 1000),
    "insertion": (insertion, jnp.full(64, jnp.inf), numbers(200), 200),
    "median of a window": (sorted_window, jnp.zeros(9), numbers(1000), 1000),
    "elimination": (elimination, numbers(32, 33), jnp.arange(32), 32),
    "Gauss-Seidel": (gauss_seidel, jnp.zeros(16), None, 50),
    "Jacobi": (jacobi, jnp.zeros(16), None, 500),
    "Horner": (horner, (jnp.zeros(500), jnp.zeros(500)), numbers(50), 50),
    "continued fraction": (
        *(continued_fraction, jnp.float32(0), jnp.abs(numbers(1000)) + 1),
        1000,
    ),
    "primes": (primes, jnp.ones(1000, bool), jnp.arange(2, 32), 30),
    "greatest divisor": (gcd, (whole(10**6, 64), whole(10**6, 64)), None, 40),
    "Fibonacci": (fibonacci, (jnp.int32(0), jnp.int32(1)), None, 1000),
    "product of polynomials": (polynomial_product, jnp.zeros(64), jnp.arange(64), 64),
    "permutation": (permuted, numbers(128), None, 1000),
    "union": (union, jnp.arange(64), whole(64, 100, 2), 100),
}
