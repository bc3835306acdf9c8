"""Batches of loops by `jax.vmap`: stock JAX and onescan, in turns.

Each lane has its steps side by side outside of the loop, as users have their data.  So
what is timed has in it what it takes to bring them where a loop wants them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chosen import chosen
from differences import difference
from jax import lax
from rich.console import Console
from rich.table import Table
from timing import in_turns

import onescan

SLOWER = 0.95  # below this a case counts as slower
TOLERANCE = 1e-4
SECONDS = 0.5  # for each engine
EXAMPLES = """
examples:
  python benchmarks/batches.py                    every case, a minute
  python benchmarks/batches.py --only rnn lstm    cases whose name contains one of these
"""

UNITS = 64


def normal(*shape: int) -> Any:
    draws = np.random.default_rng(sum(shape)).normal(size=shape)
    return jnp.asarray(draws, jnp.float32)


def rnn(weights: Any, xs: Any) -> Any:
    """States of a plain recurrent network: the last one, and all."""
    w, u = weights

    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x @ u)
        return h, h

    return lax.scan(step, jnp.zeros(UNITS), xs)


def lstm(weights: Any, xs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(h @ weights + jnp.tile(x, 4), 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (jnp.zeros(UNITS), jnp.zeros(UNITS)), xs)


def linear(decay: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (c * decay + x, c), jnp.zeros(xs.shape[1:]), xs)


def kalman(turn: Any, xs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        mean, spread = state
        mean, spread = mean @ turn + x, turn @ spread @ turn.T + jnp.eye(8)
        return (mean, spread), (mean, spread)

    return lax.scan(step, (jnp.zeros(8), jnp.eye(8)), xs)


def rolled(_: Any, xs: Any) -> Any:
    step = lambda c, x: (jnp.roll(c, 1, 0) * 0.5 + x, c.mean())
    return lax.scan(step, jnp.zeros(xs.shape[1:]), xs)


def summed(f: Callable[..., Any], batch: Any) -> Callable[..., Any]:
    """The gradient of a sum over all lanes, for what they share and for each."""
    value = lambda shared, xs: sum(y.sum() for y in jax.tree.leaves(batch(shared, xs)))
    return jax.grad(value, (0, 1))


def cases() -> dict[str, tuple[Callable[..., Any], Any, Any]]:
    """By name a function of what lanes share and of their steps, and both of these."""
    weights = normal(UNITS, UNITS) / 10, normal(UNITS, UNITS) / 10
    decay = jax.nn.sigmoid(normal(UNITS))
    given: dict[str, tuple[Any, Any, Any]] = {
        "rnn, 32 of them": (rnn, weights, normal(32, 100, UNITS)),
        "lstm, 32 of them": (lstm, normal(UNITS, 4 * UNITS) / 10, normal(32, 100, 64)),
        "linear, 32 of them": (linear, decay, normal(32, 100, UNITS)),
        "linear in 3 numbers, 200": (linear, decay[:3], normal(200, 100, 3)),
        "kalman, 50 of them": (kalman, normal(8, 8) / 10, normal(50, 100, 8)),
        "5 x 65 numbers, 4 of them": (rolled, None, normal(4, 150, 5, 65)),
        "20 x 20 numbers, 16 of them": (rolled, None, normal(16, 50, 20, 20)),
    }
    found = {}
    for name, (f, shared, xs) in given.items():
        batch = jax.vmap(f, in_axes=(None, 0))
        found[name] = batch, shared, xs
        if shared is not None:
            found[f"{name}, gradient"] = summed(f, batch), shared, xs
    return found


def main() -> int:
    asked = chosen(cases, __doc__, EXAMPLES)
    onescan.install()
    console, failed = Console(), 0
    table = Table("batch", "stock", "onescan", "faster", "differs by", box=None)
    with console.status("compiling and timing") as status:
        for name, (f, *args) in asked.items():
            status.update(name)
            calls, results = {}, {}
            for title, engine in (("stock", "xla"), ("onescan", "auto")):
                with onescan.engine(engine):
                    program = jax.jit(lambda *xs, f=f: f(*xs)).lower(*args).compile()
                results[title] = program(*args)
                calls[title] = lambda p=program, a=args: jax.block_until_ready(p(*a))
            taken = in_turns(calls, SECONDS)
            stock, ours = (taken[title].seconds for title in ("stock", "onescan"))
            apart = difference(results["onescan"], results["stock"])
            well = apart < TOLERANCE and stock / ours >= SLOWER
            failed += not well
            times = f"{stock * 1e3:.2f} ms", f"{ours * 1e3:.2f} ms"
            row = name, *times, f"{stock / ours:.2f}x", f"{apart:.0e}"
            table.add_row(*row, style="" if well else "red")
    console.print(table)
    console.print(f"{failed} batches wrong, or below {SLOWER}x")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
