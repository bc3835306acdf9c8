"""Fields on grids: fluids, light, patterns."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from textbook_loops.parts import Loop, numbers


def gray_scott(s, _):
    u, v = s
    around = lambda a: (
        sum(jnp.roll(a, n, axis) for n in (1, -1) for axis in (0, 1)) - 4 * a
    )
    uvv = u * v * v
    u = u + 0.16 * around(u) - uvv + 0.035 * (1 - u)
    return (u, v + 0.08 * around(v) + uvv - 0.1 * v), None


def lattice_boltzmann(f, _):
    density = f.sum(0)
    flow = jnp.einsum("qd,qxy->dxy", SPEEDS, f) / density
    along = jnp.einsum("qd,dxy->qxy", SPEEDS, flow)
    square = 1.5 * (flow**2).sum(0)
    rest = SHARES[:, None, None] * density * (1 + 3 * along + 4.5 * along**2 - square)
    f = f - 0.6 * (f - rest)
    moved = [jnp.roll(f[q], (int(a), int(b)), (0, 1)) for q, (a, b) in enumerate(WAYS)]
    return jnp.stack(moved), None


def maxwell(s, t):
    e, h = s
    h = h + 0.5 * (jnp.roll(e, -1) - e)
    e = e + 0.5 * (h - jnp.roll(h, 1))
    return (e.at[100].add(jnp.exp(-((t - 30.0) ** 2) / 100)), h), e[150]


def shallow_water(s, _):
    h, u, v = s
    dx = lambda a: 0.5 * (jnp.roll(a, -1, 0) - jnp.roll(a, 1, 0))
    dy = lambda a: 0.5 * (jnp.roll(a, -1, 1) - jnp.roll(a, 1, 1))
    u, v = u - 0.1 * dx(h), v - 0.1 * dy(h)
    return (h - 0.1 * (dx(h * u) + dy(h * v)), u, v), None


def pressure(p, _):
    p = p.at[1:-1, 1:-1].set(
        0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - SOURCE)
    )
    return p.at[0].set(p[1]).at[-1].set(p[-2]).at[:, 0].set(p[:, 1]), None


def advection(q, _):
    slope = jnp.diff(q, prepend=q[-1:])
    limited = jnp.where(slope * jnp.roll(slope, -1) > 0, slope, 0)
    flux = q + 0.4 * limited
    return q - 0.2 * (flux - jnp.roll(flux, 1)), None


def blurred(a, _):
    return lax.conv_general_dilated(a[None, None], KERNEL, (1, 1), "SAME")[0, 0], None


def blurred_by_hand(a, _):
    wide = jnp.pad(a, 1, mode="edge")
    n, m = a.shape
    parts = [wide[i : i + n, j : j + m] for i in range(3) for j in range(3)]
    return sum(w * part for w, part in zip(KERNEL.ravel(), parts, strict=True)), None


def sandpile(a, _):
    over = a >= 4
    a = a - 4 * over
    wide = jnp.pad(over.astype(a.dtype), 1)
    return a + wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[
        1:-1, :-2
    ], over.sum()


def fires(s, _):
    trees, burning = s
    near = sum(jnp.roll(burning, n, axis) for n in (1, -1) for axis in (0, 1))
    caught = trees & (near > 0)
    return (trees & ~caught, caught.astype(jnp.int32)), caught.sum()


def schroedinger(psi, _):
    turned = psi * jnp.exp(-0.5j * WELL)
    turned = jnp.fft.ifft(jnp.fft.fft(turned) * jnp.exp(-0.5j * WAVES**2))
    return turned * jnp.exp(-0.5j * WELL), jnp.abs(turned).max()


def cahn_hilliard(c, _):
    around = lambda a: (
        sum(jnp.roll(a, n, axis) for n in (1, -1) for axis in (0, 1)) - 4 * a
    )
    return c + 0.01 * around(c**3 - c - 0.5 * around(c)), c.std()


def cable(s, current):
    v, n, m, h = s
    rate = lambda a, b, c: a * (v - b) / (1 - jnp.exp(-(v - b) / c))
    n = n + 0.01 * (
        rate(0.01, -55.1, 10.0) * (1 - n) - 0.125 * jnp.exp(-(v + 65) / 80) * n
    )
    m = m + 0.01 * (rate(0.1, -40.1, 10.0) * (1 - m) - 4 * jnp.exp(-(v + 65) / 18) * m)
    h = h + 0.01 * (
        0.07 * jnp.exp(-(v + 65) / 20) * (1 - h) - h / (1 + jnp.exp(-(v + 35) / 10))
    )
    flows = 36 * n**4 * (v + 77) + 120 * m**3 * h * (v - 50) + 0.3 * (v + 54.4)
    coupled = jnp.diff(jnp.pad(v, 1, mode="edge"), n=2)
    v = v + 0.01 * (current - flows + coupled)
    return (v, n, m, h), v[0]


WAYS = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
SPEEDS = jnp.array(WAYS, jnp.float32)
SHARES = jnp.array([16, 4, 4, 4, 4, 1, 1, 1, 1]) / 36
SOURCE, KERNEL = 0.01 * numbers(62, 62), jnp.ones((1, 1, 3, 3)) / 9
WELL = 0.01 * jnp.linspace(-4, 4, 256) ** 2
WAVES = 0.1 * jnp.fft.fftfreq(256, 1 / 256)

LOOPS: dict[str, Loop] = {
    "Gray-Scott, 64": (
        gray_scott,
        (jnp.ones((64, 64)), numbers(64, 64) ** 2 * 0.1),
        None,
        200,
    ),
    "Boltzmann, 32": (lattice_boltzmann, 1 + 0.01 * numbers(9, 32, 32), None, 100),
    "Maxwell, 200": (maxwell, (jnp.zeros(200), jnp.zeros(200)), jnp.arange(500.0), 500),
    "shallow water": (
        shallow_water,
        (1 + 0.01 * numbers(48, 48), *(jnp.zeros((48, 48)),) * 2),
        None,
        200,
    ),
    "pressure": (pressure, jnp.zeros((64, 64)), None, 200),
    "advection": (advection, numbers(400), None, 500),
    "blur": (blurred, numbers(64, 64), None, 50),
    "blur by hand": (blurred_by_hand, numbers(64, 64), None, 50),
    "sandpile": (sandpile, (numbers(64, 64) * 3).astype(jnp.int32) + 3, None, 200),
    "fires": (
        fires,
        (numbers(64, 64) > -0.3, (numbers(64, 64) > 2.5).astype(jnp.int32)),
        None,
        100,
    ),
    "Schroedinger, 256": (
        schroedinger,
        jnp.exp(-(jnp.linspace(-4, 4, 256) ** 2)) + 0j,
        None,
        200,
    ),
    "Cahn-Hilliard": (cahn_hilliard, 0.1 * numbers(64, 64), None, 200),
    "cable": (
        cable,
        (jnp.full(50, -65.0), *(jnp.full(50, 0.3),) * 3),
        jnp.full(500, 8.0),
        500,
    ),
}
