"""A training run that kills itself, or takes so long that others can.

python killed_training.py DIRECTORY STEPS     kills itself after so many steps
python killed_training.py DIRECTORY           a hundredth of a second a chunk
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onescan import train

STEPS, CHUNK = 200, 10


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


def to_the_end(directory: str, each_chunk: Callable[..., None]) -> None:
    """The run with checkpoints, from the last of them on."""
    done = run(
        checkpoint_dir=directory,
        checkpoint_every=0,
        log=[each_chunk, Path(directory).parent / "log.jsonl"],
    )
    np.save(Path(directory).parent / "losses.npy", done.metrics["loss"])


def checkpoints(directory: str) -> set[str]:
    found = Path(directory, "steps").glob("*")
    return {path.name for path in found if path.name.isdigit()}  # whole ones


def main(directory: str, last: int | None = None) -> None:
    before = checkpoints(directory)

    def each_chunk(step: int, *_: Any) -> None:
        while last is not None and step >= last:
            if checkpoints(directory) - before:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)
        time.sleep(0.01)

    to_the_end(directory, each_chunk)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
