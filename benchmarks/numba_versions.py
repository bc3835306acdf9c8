"""The loops as a Numba user writes them: plain Python loops under `njit`.

Each is ``name(*sizes, *inputs, *outputs)``, as case.py says.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

try:
    from numba import njit
except ImportError:
    njit = None


def version(
    name: str,
    sizes: tuple[int, ...],
    inputs: list[np.ndarray],
    outputs: list[np.ndarray],
) -> Callable[[], None] | None:
    """A call of the Numba function `name` that fills `outputs`, if there is one."""
    if njit is None or name not in LOOPS:
        return None
    function = njit(LOOPS[name])
    arguments = (*sizes, *map(np.atleast_1d, inputs), *map(np.atleast_1d, outputs))
    return lambda: function(*arguments)


def logistic_scalar(steps, x0, last):
    x = x0[0]
    for _ in range(steps):
        x = np.float32(3.5) * x * (np.float32(1.0) - x)
    last[0] = x


def logistic(steps, n, x0, last):
    for i in range(n):
        last[i] = x0[i]
    for _ in range(steps):
        for i in range(n):
            last[i] = np.float32(3.5) * last[i] * (np.float32(1.0) - last[i])


def stack_scalar(steps, x0, xs):
    x = x0[0]
    for t in range(steps):
        x = np.float32(0.999) * x + np.float32(0.1)
        xs[t] = x


def _lorenz_step():
    ten, top, slow = np.float32(10.0), np.float32(28.0), np.float32(8.0 / 3.0)
    dt, half, sixth = np.float32(0.002), np.float32(0.001), np.float32(0.002 / 6)
    two = np.float32(2.0)

    @njit
    def velocity(x, y, z):
        return ten * (y - x), x * (top - z) - y, x * y - slow * z

    @njit
    def step(x, y, z):
        ax, ay, az = velocity(x, y, z)
        bx, by, bz = velocity(x + half * ax, y + half * ay, z + half * az)
        cx, cy, cz = velocity(x + half * bx, y + half * by, z + half * bz)
        ex, ey, ez = velocity(x + dt * cx, y + dt * cy, z + dt * cz)
        return (
            x + sixth * (ax + two * bx + two * cx + ex),
            y + sixth * (ay + two * by + two * cy + ey),
            z + sixth * (az + two * bz + two * cz + ez),
        )

    return step


lorenz_step = njit and _lorenz_step()


def lorenz(steps, n, x0, y0, z0, xn, yn, zn):
    for i in range(n):
        x, y, z = x0[i], y0[i], z0[i]
        for _ in range(steps):
            x, y, z = lorenz_step(x, y, z)
        xn[i], yn[i], zn[i] = x, y, z


def lorenz_path(steps, n, x0, y0, z0, xs, ys, zs):
    px, py, pz = xs.reshape(steps, n), ys.reshape(steps, n), zs.reshape(steps, n)
    x, y, z = x0.copy(), y0.copy(), z0.copy()
    for t in range(steps):
        for i in range(n):
            x[i], y[i], z[i] = lorenz_step(x[i], y[i], z[i])
            px[t, i], py[t, i], pz[t, i] = x[i], y[i], z[i]


def lorenz_vmap(steps, n, starts, paths):
    for i in range(n):
        x, y, z = starts[i]
        for t in range(steps):
            x, y, z = lorenz_step(x, y, z)
            paths[i, t, 0], paths[i, t, 1], paths[i, t, 2] = x, y, z


def gae(steps, n, rewards, values, last, dones, advantages):
    gamma, decay, one = np.float32(0.99), np.float32(0.99 * 0.95), np.float32(1.0)
    carry = np.zeros(n, np.float32)
    for t in range(steps - 1, -1, -1):
        for i in range(n):
            alive = one - dones[t, i]
            following = values[t + 1, i] if t + 1 < steps else last[i]
            error = rewards[t, i] + gamma * following * alive - values[t, i]
            carry[i] = error + decay * alive * carry[i]
            advantages[t, i] = carry[i]


def _product():
    @njit
    def product(a, b, out):
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                total = np.float32(0.0)
                for k in range(a.shape[1]):
                    total += a[i, k] * b[k, j]
                out[i, j] = total

    return product


product = njit and _product()


def kalman(steps, filters, f, h, q, r, mean0, cov0, zs, means, covs):
    m, n = h.shape
    start, spreads = mean0.reshape(filters, n, 1), cov0.reshape(filters, n, n)
    seen, out = zs.reshape(filters, steps, m, 1), means.reshape(filters, steps, n)
    last = covs.reshape(filters, n, n)
    ft, ht = np.ascontiguousarray(f.T), np.ascontiguousarray(h.T)
    mean, moved = np.empty((n, 1), np.float32), np.empty((n, 1), np.float32)
    cov, left = np.empty((n, n), np.float32), np.empty((n, n), np.float32)
    ahead, cross = np.empty((n, n), np.float32), np.empty((n, m), np.float32)
    gain, s = np.empty((n, m), np.float32), np.empty((m, m), np.float32)
    inverse, expected = np.empty((m, m), np.float32), np.empty((m, 1), np.float32)
    for b in range(filters):
        mean[:], cov[:] = start[b], spreads[b]
        for t in range(steps):
            product(f, mean, moved)
            product(f, cov, left)
            product(left, ft, ahead)
            for i in range(n):
                for j in range(n):
                    ahead[i, j] += q[i, j]
            product(ahead, ht, cross)
            product(h, cross, s)
            for i in range(m):
                for j in range(m):
                    s[i, j] += r[i, j]
            if m == 1:
                inverse[0, 0] = np.float32(1.0) / s[0, 0]
            else:
                scale = np.float32(1.0) / (s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0])
                inverse[0, 0], inverse[0, 1] = s[1, 1] * scale, -s[0, 1] * scale
                inverse[1, 0], inverse[1, 1] = -s[1, 0] * scale, s[0, 0] * scale
            product(cross, inverse, gain)
            product(h, moved, expected)
            for i in range(n):
                total = moved[i, 0]
                for k in range(m):
                    total += gain[i, k] * (seen[b, t, k, 0] - expected[k, 0])
                mean[i, 0] = total
                out[b, t, i] = total
            product(gain, h, left)
            for i in range(n):
                for j in range(n):
                    left[i, j] = np.float32(1.0 if i == j else 0.0) - left[i, j]
            product(left, ahead, cov)
        last[b] = cov


def hmm_forward(steps, k, transition, start, likelihoods, alphas):
    alpha = start.copy()
    for t in range(steps):
        for j in range(k):
            top = np.float32(-np.inf)
            for i in range(k):
                top = max(top, alpha[i] + transition[i, j])
            total = np.float32(0.0)
            for i in range(k):
                total += np.exp(alpha[i] + transition[i, j] - top)
            alphas[t, j] = top + np.log(total) + likelihoods[t, j]
        alpha[:] = alphas[t]


def biquad(steps, signal, ys):
    b0, b1, b2 = np.float32(0.0675), np.float32(0.1349), np.float32(0.0675)
    a1, a2 = np.float32(-1.143), np.float32(0.4128)
    s1 = s2 = np.float32(0.0)
    for t in range(steps):
        x = signal[t]
        y = b0 * x + s1
        s1 = b1 * x + s2 - a1 * y
        s2 = b2 * x - a2 * y
        ys[t] = y


def echo(steps, slots, start, signal, buffer, ys):
    buffer[:] = start
    i = 0
    for t in range(steps):
        y = signal[t] + np.float32(0.5) * buffer[i]
        buffer[i] = y
        ys[t] = y
        i = (i + 1) % slots


LOOPS = {
    "biquad": biquad,
    "echo": echo,
    "gae": gae,
    "hmm_forward": hmm_forward,
    "kalman_2": kalman,
    "kalman_4": kalman,
    "kalman_8": kalman,
    "logistic": logistic,
    "logistic_scalar": logistic_scalar,
    "lorenz": lorenz,
    "lorenz_path": lorenz_path,
    "lorenz_vmap": lorenz_vmap,
    "stack_scalar": stack_scalar,
}
