"""Bodies, waves and populations."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from textbook_loops.parts import Loop, numbers, scalars


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
}
