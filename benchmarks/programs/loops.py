"""Single loops that have been slow: outputs that are constant, halves, small bodies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs.program import Program
from programs.states import arrays


def constant_output():
    def run(c):
        def step(c, _):
            c = 0.9 * c + 0.1
            return c, (c, jnp.full(c.shape, 1.0))

        return lax.scan(step, c, None, length=100)

    return run, arrays((4096,))


def lstm(batch: int = 64, width: int = 256, time: int = 50):
    def run(w, u, xs):
        def step(state, x):
            h, c = state
            i, f, g, o = jnp.split(x @ w + h @ u, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((batch, width))
        return lax.scan(step, (zeros, zeros), xs)[1]

    w, u, xs = arrays((width, 4 * width), (width, 4 * width), (time, batch, width))
    return run, (w / 4, u / 4, xs)


def lstm_grad():
    run, args = lstm()
    return jax.grad(lambda *args: jnp.mean(run(*args) ** 2), argnums=(0, 1)), args


def three_bodies(state):
    """Three bodies in a plane, every coordinate a carry of its own."""

    def force(a, b):
        dx, dy = b[0] - a[0], b[1] - a[1]
        near = (dx * dx + dy * dy + 0.1) ** -1.5
        return dx * near, dy * near

    def step(bodies, _):
        moved = []
        for a in bodies:
            pulls = [force(a, b) for b in bodies if b is not a]
            vx = a[2] + 0.01 * sum(p[0] for p in pulls)
            vy = a[3] + 0.01 * sum(p[1] for p in pulls)
            moved.append((a[0] + 0.01 * vx, a[1] + 0.01 * vy, vx, vy))
        return tuple(moved), None

    bodies = tuple(tuple(state[i, j] for j in range(4)) for i in range(3))
    bodies, _ = lax.scan(step, bodies, None, length=500)
    return sum(b[0] ** 2 + b[1] ** 2 for b in bodies)


def half(dtype, body):
    def build():
        def run(xs):
            step = lambda c, x: (body(c * dtype(0.5) + x), None)
            return lax.scan(step, jnp.ones(4096, dtype), xs)[0]

        return run, (jnp.ones(300, dtype),)

    return build


def permuted():
    orders = np.stack([np.random.RandomState(k).permutation(512) for k in range(1000)])

    def run(c, orders):
        return lax.scan(lambda c, p: (c[p] * 1.001, None), c, orders)[0]

    return run, (*arrays((512,)), jnp.asarray(orders))


PROGRAMS = [
    Program("loop/constant output", constant_output),
    Program("loop/lstm 64x256", lstm),
    Program("loop/lstm 64x256 grad", lstm_grad),
    Program("loop/three bodies grad", lambda: (jax.grad(three_bodies), arrays((3, 4)))),
    Program("loop/float16 multiply-add", half(jnp.float16, lambda c: c)),
    Program("loop/float16 tanh", half(jnp.float16, jnp.tanh), tolerance=1e-2),
    Program("loop/bfloat16 multiply-add", half(jnp.bfloat16, lambda c: c)),
    Program("loop/permute 512", permuted),
]
