"""A training run that kills itself at a random moment, until it gets to its end.

    python killed_training.py DIRECTORY SEED     one attempt; exits with 0 at the end

The seed decides when; without one it is left to end in peace.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from onescan import train

STEPS, CHUNK = 400, 10


def step(state, batch):
    """A small network with momentum and noise: bits that are easily lost."""
    key, drawn = jax.random.split(state["key"])

    def loss(params):
        hidden = jnp.tanh(batch["x"] @ params["in"])
        hidden = hidden * jax.random.bernoulli(drawn, 0.9, hidden.shape)
        return jnp.mean((hidden @ params["out"] - batch["y"]) ** 2)

    value, grads = jax.value_and_grad(loss)(state["params"])
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, state["velocity"], grads)
    params = jax.tree.map(lambda p, v: p - 0.01 * v, state["params"], velocity)
    return {"params": params, "velocity": velocity, "key": key}, {"loss": value}


def state():
    keys = jax.random.split(jax.random.key(1))
    params = {
        "in": jax.random.normal(keys[0], (3, 5)),
        "out": jax.random.normal(keys[1], (5,)),
    }
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "velocity": zeros, "key": jax.random.key(2)}


def data():
    x = jax.random.normal(jax.random.key(3), (100, 3))
    return train.batches({"x": x, "y": jnp.sin(x).sum(1)}, size=8)


def run(**options):
    return train.fit(
        step, state(), data(), steps=STEPS, chunk=CHUNK, progress=False, **options
    )


def main(directory: str, seed: int | None = None) -> None:
    if seed is not None:
        delay = random.Random(seed).uniform(0.05, 1.2)
        kill = lambda: (time.sleep(delay), os.kill(os.getpid(), signal.SIGKILL))
        threading.Thread(target=kill, daemon=True).start()
    done = run(
        checkpoint_dir=directory,
        checkpoint_every=0,
        log=[lambda *_: time.sleep(0.01), Path(directory).parent / "log.jsonl"],
    )
    np.save(Path(directory).parent / "losses.npy", done.metrics["loss"])


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
