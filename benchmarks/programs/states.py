"""States of sequence models, step by step: Mamba, GLA, RWKV-7 and S5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs.program import Program


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> tuple[jax.Array, ...]:
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(rng.normal(0, 0.3, s), "float32") for s in shapes)


def mamba(a, dt, b, c, x):
    """The selective scan: a state of 16 numbers for each channel."""
    dt = jax.nn.softplus(dt)

    def step(h, inputs):
        dt, b, c, x = inputs
        h = jnp.exp(dt[..., None] * a) * h + (dt * x)[..., None] * b[:, None]
        return h, jnp.einsum("bdn,bn->bd", h, c)

    h = jnp.zeros((*x.shape[1:], a.shape[-1]))
    return lax.scan(step, h, (dt, b, c, x))[1]


def mamba_arguments(time=512, batch=2, width=128, state=16):
    a, dt, b, c, x = arrays(
        (width, state),
        (time, batch, width),
        (time, batch, state),
        (time, batch, state),
        (time, batch, width),
    )
    return -jnp.exp(a), dt, b, c, x


def gla(q, k, v, gate):
    """Gated linear attention: the state of a head is an outer product's sum."""
    decay = jax.nn.sigmoid(gate) ** (1 / 16)

    def step(s, inputs):
        q, k, v, decay = inputs
        s = decay[..., None] * s + k[..., None] * v[..., None, :]
        return s, jnp.einsum("bhk,bhkv->bhv", q, s)

    s = jnp.zeros((*q.shape[1:], v.shape[-1]))
    return lax.scan(step, s, (q, k, v, decay))[1]


def gla_arguments(time=256, batch=2, heads=4, width=64):
    return arrays(*[(time, batch, heads, width)] * 4)


def rwkv7(r, w, k, v, a):
    """RWKV-7: the state is decayed, one direction of it is replaced, one is added."""
    w = jnp.exp(-jnp.exp(w))
    direction = k / (jnp.linalg.norm(k, axis=-1, keepdims=True) + 1e-6)
    a = jax.nn.sigmoid(a)

    def step(s, inputs):
        r, w, k, v, direction, a = inputs
        removed = jnp.einsum("bhvk,bhk->bhv", s, direction)
        s = s * w[..., None, :] - removed[..., None] * (direction * a)[..., None, :]
        s = s + v[..., None] * k[..., None, :]
        return s, jnp.einsum("bhvk,bhk->bhv", s, r)

    s = jnp.zeros((*r.shape[1:], k.shape[-1]))
    return lax.scan(step, s, (r, w, k, v, direction, a))[1]


def rwkv7_arguments(time=256, batch=2, heads=4, width=64):
    return arrays(*[(time, batch, heads, width)] * 5)


def s5(rate, angle, b, c, u):
    """S5: a diagonal recurrence of complex numbers between two products."""
    decay = jnp.exp(lax.complex(-jnp.exp(rate), angle))
    drive = u @ b.astype(jnp.complex64)

    def step(x, drive):
        x = decay * x + drive
        return x, x

    _, x = lax.scan(step, jnp.zeros(drive.shape[1:], jnp.complex64), drive)
    return (x @ c.astype(jnp.complex64)).real


def s5_arguments(time=1024, batch=8, width=32, state=64):
    return arrays(
        (state,), (state,), (width, state), (state, width), (time, batch, width)
    )


def gradient(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a mean square, for all arguments."""

    def loss(*args):
        return jnp.mean(forward(*args) ** 2)

    def grads(*args):
        return jax.grad(loss, argnums=tuple(range(len(args))))(*args)

    return grads


MODELS = {
    "mamba": (mamba, mamba_arguments),
    "gla": (gla, gla_arguments),
    "rwkv7": (rwkv7, rwkv7_arguments),
    "s5": (s5, s5_arguments),
}
PROGRAMS = [
    Program(f"{name}/{kind}", lambda f=f, made=made, way=way: (way(f), made()))
    for name, (f, made) in MODELS.items()
    for kind, way in (("forward", lambda f: f), ("grad", gradient))
]
