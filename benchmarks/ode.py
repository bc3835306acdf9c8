"""Integrators: Lorenz ensembles by Runge-Kutta, and the gradient of three bodies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from case import Case, normal

STEPS = 1000
CALM = 0.999  # of the elements: a few trajectories pass where a rounding grows fast


DT = 0.002


def _velocity(x, y, z):
    return 10.0 * (y - x), x * (28.0 - z) - y, x * y - (8.0 / 3.0) * z


def _advance(state):
    """Runge-Kutta on a tuple of three arrays."""

    def along(slope, h):
        return (s + h * k for s, k in zip(state, slope, strict=True))

    k1 = _velocity(*state)
    k2 = _velocity(*along(k1, DT / 2))
    k3 = _velocity(*along(k2, DT / 2))
    k4 = _velocity(*along(k3, DT))
    return tuple(
        s + (DT / 6) * (a + 2 * b + 2 * c + d)
        for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)
    )


def _advance_vector(state):
    """Runge-Kutta on a vector of three numbers."""

    def velocity(state):
        return jnp.array(_velocity(*state))

    k1 = velocity(state)
    k2 = velocity(state + DT / 2 * k1)
    k3 = velocity(state + DT / 2 * k2)
    k4 = velocity(state + DT * k3)
    return state + (DT / 6) * (k1 + 2 * k2 + 2 * k3 + k4)


def lorenz(scan, unroll, state):
    """The ends of Lorenz trajectories, the state three arrays."""

    def step(state, _):
        return _advance(state), None

    last, _ = scan(step, state, None, length=STEPS, unroll=unroll)
    return last


def lorenz_path(scan, unroll, state):
    """Whole Lorenz trajectories, the state three arrays."""

    def step(state, _):
        state = _advance(state)
        return state, state

    _, path = scan(step, state, None, length=STEPS, unroll=unroll)
    return path


def lorenz_vmap(scan, unroll, states):
    """Whole trajectories: the program for one, its state a vector, under vmap."""

    def trajectory(state):
        def step(state, _):
            state = _advance_vector(state)
            return state, state

        _, path = scan(step, state, None, length=STEPS, unroll=unroll)
        return path

    return jax.vmap(trajectory)(states)


def _lorenz_start(n: int | None):
    shape = () if n is None else (n,)
    x, y, z = (normal(seed, *shape) for seed in range(3))
    return ((x + 1.0, y + 1.0, z + 20.0),)


def lorenz_cases(n: int | None) -> list[Case]:
    name, lanes = ("scalar", 1) if n is None else (str(n), n)
    return [
        Case(
            name=f"lorenz/{name}",
            steps=STEPS,
            build=lambda: (lorenz, _lorenz_start(n)),
            ops=76 * lanes,
            bytes=0,
            kernel="lorenz",
            agree=CALM,
            sizes=(STEPS, lanes),
        ),
        Case(
            name=f"lorenz/{name}/ys",
            steps=STEPS,
            build=lambda: (lorenz_path, _lorenz_start(n)),
            ops=76 * lanes,
            bytes=12 * lanes,
            kernel="lorenz_path",
            agree=CALM,
            sizes=(STEPS, lanes),
        ),
    ]


def _lorenz_vmap_case(n: int) -> Case:
    return Case(
        name=f"lorenz/{n}/ys/vmap",
        steps=STEPS,
        build=lambda: (lorenz_vmap, (jnp.stack(*_lorenz_start(n), axis=1),)),
        ops=76 * n,
        bytes=12 * n,
        kernel="lorenz_vmap",
        agree=CALM,
        sizes=(STEPS, n),
    )


def three_bodies(scan, unroll, *start):
    """Twelve scalars: positions and velocities of three bodies in the plane."""
    dt, soft = 0.002, 0.05

    def pull(xa, ya, xb, yb):
        dx, dy = xb - xa, yb - ya
        distance2 = dx * dx + dy * dy + soft
        strength = jax.lax.rsqrt(distance2) / distance2
        return dx * strength, dy * strength

    def step(state, _):
        xa, ya, xb, yb, xc, yc, ua, va, ub, vb, uc, vc = state
        abx, aby = pull(xa, ya, xb, yb)
        bcx, bcy = pull(xb, yb, xc, yc)
        cax, cay = pull(xc, yc, xa, ya)
        ua, va = ua + dt * (abx - cax), va + dt * (aby - cay)
        ub, vb = ub + dt * (bcx - abx), vb + dt * (bcy - aby)
        uc, vc = uc + dt * (cax - bcx), vc + dt * (cay - bcy)
        xa, ya = xa + dt * ua, ya + dt * va
        xb, yb = xb + dt * ub, yb + dt * vb
        xc, yc = xc + dt * uc, yc + dt * vc
        return (xa, ya, xb, yb, xc, yc, ua, va, ub, vb, uc, vc), None

    last, _ = scan(step, start, None, length=STEPS, unroll=unroll)
    return last


def three_bodies_gradient(scan, unroll, start):
    """How far from a target the bodies end, differentiated by where they start."""

    def miss(start):
        last = three_bodies(scan, unroll, *start)
        return sum(x * x for x in last[:6])

    return jax.grad(miss)(start)


def _three_bodies_start():
    values = [1.0, 0.0, -0.5, 0.8, -0.5, -0.8, 0.0, 0.6, -0.5, -0.3, 0.5, -0.3]
    return (tuple(map(jnp.float32, values)),)


CASES = [
    *(case for n in (None, 16, 1024) for case in lorenz_cases(n)),
    *map(_lorenz_vmap_case, (16, 1024)),
    Case(
        name="nbody/grad",
        steps=STEPS,
        build=lambda: (three_bodies_gradient, _three_bodies_start()),
        ops=60 + 180,  # forward, and roughly three times that backward
        bytes=0,
    ),
]
