"""What users filed with JAX as too slow, written anew and small.

The names are those of the issues of jax-ml/jax.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs.program import Program
from programs.states import arrays


def many_scalars():
    """40150: the gradient of a loop whose carry is a dictionary of 60 scalars."""
    leaves = 60

    def run(rate, xs):
        def step(state, x):
            new = {}
            for i in range(leaves):
                above = state[f"s{(i + 1) % leaves}"]
                error = x - jnp.tanh(above)
                new[f"s{i}"] = 0.8 * state[f"s{i}"] + rate * error / (1 + above**2)
            return new, new["s0"]

        start = {f"s{i}": jnp.float32(0.01 * i) for i in range(leaves)}
        _, ys = lax.scan(step, start, xs)
        return jnp.mean((ys - xs) ** 2)

    return jax.grad(run), (jnp.float32(0.1), *arrays((614,)))


def small_cholesky():
    """36799: a float64 carry of 3 x 3 numbers, the quasi-separable Cholesky of a GP."""
    count = 2000

    def run(p, q, a, d):
        def step(f, inputs):
            p, q, a, d = inputs
            fp = f @ p
            c = jnp.sqrt(d - p @ fp)
            w = (q - a @ fp) / c
            return a @ f @ a.T + jnp.outer(w, w), (c, w)

        return lax.scan(step, jnp.zeros((3, 3)), (p, q, a, d))[1]

    rng = np.random.default_rng(0)
    p, q = (jnp.asarray(rng.normal(0, 0.1, (count, 3))) for _ in range(2))
    a = jnp.asarray(0.9 * np.eye(3) + rng.normal(0, 0.01, (count, 3, 3)))
    return run, (p, q, a, jnp.full(count, 2.0))


def cable():
    """26145: a neuron of 64 compartments, Hodgkin-Huxley gates, an implicit step."""
    count = 64

    def gate(x, opening, closing):
        rate = opening + closing
        return x + (opening / rate - x) * (1 - jnp.exp(-0.025 * rate))

    def run(current):
        def step(state, current):
            v, m, h, n = state
            am = 0.1 * (v + 40) / (1 - jnp.exp(-(v + 40.01) / 10))
            bm = 4 * jnp.exp(-(v + 65) / 18)
            ah, bh = 0.07 * jnp.exp(-(v + 65) / 20), 1 / (1 + jnp.exp(-(v + 35) / 10))
            an = 0.01 * (v + 55) / (1 - jnp.exp(-(v + 55.01) / 10))
            bn = 0.125 * jnp.exp(-(v + 65) / 80)
            m, h, n = gate(m, am, bm), gate(h, ah, bh), gate(n, an, bn)
            sodium, potassium = 120 * m**3 * h, 36 * n**4
            drive = 50 * sodium - 77 * potassium - 54.4 * 0.3
            drive = (drive.at[0].add(current)) * 0.025 + v
            diagonal = 1 + 0.025 * (sodium + potassium + 0.3) + 2 * 0.1

            def eliminate(last, inputs):
                b, d = inputs
                w = 1 / (b - last[0] * -0.1)
                new = -0.1 * w, (d + 0.1 * last[1]) * w
                return new, new

            start = jnp.zeros_like(v[0]), jnp.zeros_like(v[0])
            _, (upper, right) = lax.scan(eliminate, start, (diagonal, drive))

            def substitute(x, inputs):
                x = inputs[1] - inputs[0] * x
                return x, x

            _, v = lax.scan(substitute, v[0] * 0, (upper, right), reverse=True)
            return (v, m, h, n), v[-1]

        rest = (jnp.full(count, x) for x in (-65.0, 0.05, 0.6, 0.32))
        return lax.scan(step, tuple(rest), current)[1]

    return run, (jnp.where(jnp.arange(400) < 200, 10.0, 0.0),)


def mass_matrices():
    """26021: mass matrices of a chain of 12 joints, float64, 100 positions."""
    joints = 12

    def frames(q):
        def step(pose, angle):
            cos, sin = jnp.cos(angle), jnp.sin(angle)
            zero, one = jnp.zeros_like(angle), jnp.ones_like(angle)
            local = jnp.array(
                [
                    [cos, -sin, zero, 0.1 * one],
                    [sin, cos, zero, zero],
                    [zero, zero, one, 0.2 * one],
                    [zero, zero, zero, one],
                ]
            )
            pose = pose @ local[jnp.array([0, 2, 1, 3])]
            return pose, pose[:3, 3]

        return lax.scan(step, jnp.eye(4), q)[1]

    def run(qs):
        def mass(q):
            jacobian = jax.jacfwd(frames)(q)
            return jnp.einsum("bxi,bxj->ij", jacobian, jacobian)

        return lax.map(mass, qs)

    rng = np.random.default_rng(0)
    return run, (jnp.asarray(rng.normal(size=(100, joints))),)


def random_reads():
    """31282: a loop that reads at random and writes in order, linearized, batched."""
    count = 4000

    def one(start, xs):
        def loop(xs):
            def step(state, _):
                t, xs = state
                i = jax.random.randint(jax.random.key(t), (), 0, t + 1)
                return (t + 1, xs.at[t].set(2 * jnp.tanh(xs[i]))), None

            return lax.scan(step, (start, xs), None, length=count)[0][1]

        return jax.linearize(loop, xs)[1](jnp.ones_like(xs))

    return jax.vmap(one), (jnp.zeros(2, jnp.int32), jnp.zeros((2, count)))


def smoothing():
    """37465: descent on the squared differences of a volume, 48 x 48 x 48."""

    def cost(x):
        return sum(jnp.sum(jnp.diff(x, axis=axis) ** 2) for axis in range(3))

    def run(x):
        step = lambda x, _: (x - 0.05 * jax.grad(cost)(x), None)
        return lax.scan(step, x, None, length=20)[0]

    return run, arrays((48, 48, 48))


def running_maximum():
    """25190: a while loop of 2**18 steps that reads one number in each."""
    numbers = jnp.arange(2**18)

    def run(numbers):
        stop = jnp.max(numbers)
        return lax.while_loop(
            lambda state: state[0] < stop,
            lambda state: (jnp.maximum(state[0], numbers[state[1]]), state[1] + 1),
            (jnp.int32(0), jnp.int32(0)),
        )

    return run, (numbers,)


def tridiagonal():
    """2491: 10,000 tridiagonal systems of 100 numbers, one sweep each way."""

    def run(a, b, c, d):
        def forward(last, inputs):
            a, b, c, d = inputs
            w = 1 / (b - a * last[0])
            new = c * w, (d - a * last[1]) * w
            return new, new

        def back(x, inputs):
            x = inputs[1] - inputs[0] * x
            return x, x

        zeros = jnp.zeros(a.shape[0])
        turned = tuple(x.T for x in (a, b, c, d))
        _, new = lax.scan(forward, (zeros, zeros), turned)
        return lax.scan(back, zeros, new, reverse=True)[1].T

    a, b, c, d = arrays(*[(10_000, 100)] * 4)
    return run, (a, b + 5, c, d)


PROGRAMS = [
    Program("jax 40150/60 scalars grad", many_scalars),
    Program("jax 36799/3x3 cholesky", small_cholesky, x64=True),
    Program("jax 26145/cable", cable, x64=True),
    Program("jax 26021/mass matrices", mass_matrices, x64=True),
    Program("jax 31282/random reads", random_reads),
    Program("jax 37465/smoothing", smoothing),
    Program("jax 25190/maximum", running_maximum),
    Program("jax 2491/tridiagonal", tridiagonal),
]
