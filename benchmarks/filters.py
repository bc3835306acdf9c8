"""Filters: Kalman, hidden Markov forward pass, and a recursive digital filter."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from case import Case, normal
from jax.scipy.special import logsumexp

STEPS = 1000
SAMPLES = 20_000


def _inverse(s):
    """Of a 1x1 or 2x2 matrix, written out."""
    if s.shape == (1, 1):
        return 1.0 / s
    (a, b), (c, d) = s
    return jnp.array([[d, -b], [-c, a]]) / (a * d - b * c)


def kalman(scan, unroll, model, mean, cov, observations):
    """Predict, then correct by the observation; the filtered means are stacked."""
    f, h, q, r = model
    eye = jnp.eye(f.shape[0], dtype=f.dtype)

    def step(carry, z):
        mean, cov = carry
        mean = f @ mean
        cov = f @ cov @ f.T + q
        gain = cov @ h.T @ _inverse(h @ cov @ h.T + r)
        mean = mean + gain @ (z - h @ mean)
        cov = (eye - gain @ h) @ cov
        return (mean, cov), mean

    (_, cov), means = scan(step, (mean, cov), observations, unroll=unroll)
    return means, cov


def kalman_batch(scan, unroll, model, means, covs, observations):
    """Many filters at once: each with its own start and observations."""

    def one(mean, cov, zs):
        return kalman(scan, unroll, model, mean, cov, zs)

    return jax.vmap(one)(means, covs, observations)


def _kalman_args(n: int, batch: tuple[int, ...]):
    m = _observed(n)
    f = np.eye(n) + 0.1 * np.eye(n, k=1) - 0.05 * np.eye(n, k=-1)
    h = np.zeros((m, n))
    h[range(m), range(0, 2 * m, 2)] = 1.0
    parts = 0.97 * f, h, 0.01 * np.eye(n), 0.1 * np.eye(m)
    model = tuple(jnp.asarray(part, jnp.float32) for part in parts)
    cov = (1.0 + normal(1, *batch, 1, 1) ** 2) * jnp.eye(n, dtype="float32")
    mean, zs = normal(2, *batch, n), normal(3, *batch, STEPS, m)
    return model, mean, cov.reshape(*batch, n, n), zs


def _observed(n: int) -> int:
    return 1 if n == 2 else 2


def kalman_case(n: int, batch: int | None) -> Case:
    m, filters = _observed(n), batch or 1
    products = 3 * n**3 + 3 * n * n * m + 3 * n * m * m + n * n + 2 * n * m
    shape = () if batch is None else (batch,)
    fn = kalman if batch is None else kalman_batch
    return Case(
        name=f"kalman/{n}" if batch is None else f"kalman/{n}x{batch}",
        steps=STEPS,
        build=lambda: (fn, _kalman_args(n, shape)),
        ops=2 * products * filters,
        bytes=4 * (m + n) * filters,
        kernel=f"kalman_{n}",
        sizes=(STEPS, filters),
    )


def hmm_forward(scan, unroll, log_transition, log_start, log_likelihoods):
    """Forward probabilities in log space, stacked."""

    def step(alpha, log_likelihood):
        alpha = logsumexp(alpha[:, None] + log_transition, axis=0) + log_likelihood
        return alpha, alpha

    _, alphas = scan(step, log_start, log_likelihoods, unroll=unroll)
    return alphas


def hmm_case(k: int) -> Case:
    def build():
        log_transition = jax.nn.log_softmax(normal(0, k, k), axis=1)
        log_start = jax.nn.log_softmax(normal(1, k))
        return hmm_forward, (log_transition, log_start, -(normal(2, STEPS, k) ** 2))

    return Case(
        name=f"hmm/{k}",
        steps=STEPS,
        build=build,
        ops=k * k * (3 + 12) + k * 15,  # an exp counts as 12, a log as 15
        bytes=8 * k,
        kernel="hmm_forward",
        sizes=(STEPS, k),
    )


def biquad(scan, unroll, signal):
    """A second-order recursive low-pass filter, the samples as a scan."""
    b0, b1, b2, a1, a2 = 0.0675, 0.1349, 0.0675, -1.143, 0.4128

    def step(state, x):
        s1, s2 = state
        y = b0 * x + s1
        return (b1 * x + s2 - a1 * y, b2 * x - a2 * y), y

    zero = jnp.zeros((), signal.dtype)
    _, ys = scan(step, (zero, zero), signal, unroll=unroll)
    return ys


CASES = [
    *(kalman_case(n, batch) for batch in (None, 256) for n in (2, 4, 8)),
    *(hmm_case(k) for k in (4, 16, 64)),
    Case(
        name="biquad",
        steps=SAMPLES,
        build=lambda: (biquad, (normal(0, SAMPLES),)),
        ops=9,
        bytes=8,
        kernel="biquad",
        sizes=(SAMPLES,),
    ),
]
