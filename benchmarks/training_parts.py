"""Where a training step of the MLP 16-64-64-1 spends its time, part by part.

Each part is a loop of 2,000 steps by the native engine, in turns; the best of them
counts, so that a busy machine disturbs little.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
from training_models import adam, regression

import onescan

COUNT, TURNS = 2000, 15
MODEL = regression()
PARAMS = jax.tree.map(jnp.asarray, MODEL.params)
BATCHES = jax.tree.map(jnp.asarray, MODEL.batches)


def batch(i: Any) -> Any:
    return jax.tree.map(lambda stack: stack[i % len(stack)], BATCHES)


def loss(params: Any, i: Any) -> Any:
    x = batch(i)["x"]
    x = jnp.maximum(x @ params["w0"] + params["b0"], 0)
    x = jnp.maximum(x @ params["w1"] + params["b1"], 0)
    return jnp.mean((x @ params["w2"] + params["b2"] - batch(i)["y"]) ** 2)


def forward(total: Any, i: Any) -> Any:
    params = jax.tree.map(lambda p: p + 0 * total, PARAMS)
    return total + 1e-9 * loss(params, i), 0.0


def sgd(params: Any, i: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(params, i)
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value


def adam_alone(state: Any, _: Any) -> Any:
    return adam(state, jax.tree.map(lambda p: 1e-3 * p, state["params"])), 0.0


def whole(state: Any, i: Any) -> Any:
    return MODEL.step(state, batch(i))


PARTS = {
    "forward": (forward, jnp.float32(0)),
    "forward, gradient, SGD": (sgd, PARAMS),
    "Adam alone": (adam_alone, MODEL.state()),
    "the whole step": (whole, MODEL.state()),
}


def main() -> None:
    runs, best = {}, dict.fromkeys(PARTS, float("inf"))
    for name, (step, state) in PARTS.items():
        loop = jax.jit(lambda s, step=step: onescan.scan(step, s, jnp.arange(COUNT)))
        with onescan.engine("native"):
            runs[name] = loop.lower(state).compile()
    for _ in range(TURNS):
        for name, (_, state) in PARTS.items():
            begun = time.perf_counter()
            jax.block_until_ready(runs[name](state))
            best[name] = min(best[name], time.perf_counter() - begun)
    print("| a step of | us |\n|---|---|")
    for name, seconds in best.items():
        print(f"| {name} | {seconds / COUNT * 1e6:.1f} |")


if __name__ == "__main__":
    main()
