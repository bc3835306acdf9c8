"""Recurrent networks: GRU and LSTM, forward and gradient, as users write them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from case import Case, normal

STEPS = 100
SHAPES = [(1, 32), (1, 128), (16, 128), (64, 256)]  # batch, hidden = input


def gru(scan, unroll, params, h, xs):
    """All hidden states of a GRU."""

    def step(h, x):
        from_x = x @ params["wx"] + params["b"]
        from_h = h @ params["wh"]
        xr, xz, xn = jnp.split(from_x, 3, axis=-1)
        hr, hz, hn = jnp.split(from_h, 3, axis=-1)
        r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
        h = (1.0 - z) * jnp.tanh(xn + r * hn) + z * h
        return h, h

    _, hs = scan(step, h, xs, unroll=unroll)
    return hs


def lstm(scan, unroll, params, h, xs):
    """All hidden states of an LSTM."""

    def step(carry, x):
        h, c = carry
        gates = x @ params["wx"] + h @ params["wh"] + params["b"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    _, hs = scan(step, (h, jnp.zeros_like(h)), xs, unroll=unroll)
    return hs


def gradient_of(cell):
    """A case's function for the gradient of a cell."""

    def gradient(scan, unroll, params, h, xs):
        """The gradient of a mean squared output by the cell's parameters."""

        def loss(params):
            return jnp.mean(cell(scan, unroll, params, h, xs) ** 2)

        return jax.grad(loss)(params)

    return gradient


CELLS = {"gru": (gru, 3), "lstm": (lstm, 4)}  # and the gates of each


def _args(gates: int, batch: int, hidden: int, steps: int):
    scale = hidden**-0.5
    params = {
        "b": normal(0, gates * hidden, scale=0.1),
        "wh": normal(1, hidden, gates * hidden, scale=scale),
        "wx": normal(2, hidden, gates * hidden, scale=scale),
    }
    return params, normal(3, batch, hidden), normal(4, steps, batch, hidden)


def cell_case(
    cell: str, kind: str, batch: int, hidden: int, steps: int = STEPS
) -> Case:
    fn, gates = CELLS[cell]
    forward = batch * hidden * gates * (4 * hidden + 20)
    passes, fn = (1, fn) if kind == "forward" else (3, gradient_of(fn))
    return Case(
        name=f"{cell}/{kind}/{batch}x{hidden}",
        steps=steps,
        build=lambda: (fn, _args(gates, batch, hidden, steps)),
        ops=passes * forward,
        bytes=8 * batch * hidden,
        kernel=f"{cell}_{kind}",
        sizes=(steps, batch, hidden),
    )


CASES = [
    cell_case(cell, kind, *shape)
    for cell in CELLS
    for kind in ("forward", "grad")
    for shape in SHAPES
]
