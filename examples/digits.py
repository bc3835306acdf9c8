"""Handwritten digits: a classifier trained by one call.

`onescan.train.fit` takes one step of training, the state it changes and the data. It
compiles the step into loops of many steps, shuffles the examples in every epoch, shows
a bar, and returns what was measured. The digits are the 1,797 images of 8 by 8 pixels
that come with scikit-learn; the optimiser is optax's.

Add `--quick` for a short run. The learning curves are saved as `digits.png`.

Run it with `python examples/digits.py`.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from onescan import train

HIDDEN, BATCH, TRAINING = 128, 64, 1500
ADAM = optax.adam(2e-3)


def load():
    """Images and labels, for training and for testing."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = np.float32(digits.data[order] / 16)
    y = np.int32(digits.target[order])
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    first = jax.tree.map(lambda leaf: leaf[:TRAINING], data)
    rest = jax.tree.map(lambda leaf: leaf[TRAINING:], data)
    return first, rest


def init(key):
    keys = jax.random.split(key)
    params = {
        "w1": jax.random.normal(keys[0], (64, HIDDEN)) / 8,
        "b1": jnp.zeros(HIDDEN),
        "w2": jax.random.normal(keys[1], (HIDDEN, 10)) / HIDDEN**0.5,
        "b2": jnp.zeros(10),
    }
    return {"params": params, "optimiser": ADAM.init(params)}


def logits(params, x):
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def step(state, batch):
    """One step of training: `(state, batch) -> (state, metrics)`."""

    def loss(params):
        scores = logits(params, batch["x"])
        right = scores.argmax(1) == batch["y"]
        labels = jax.nn.one_hot(batch["y"], 10)
        return optax.softmax_cross_entropy(scores, labels).mean(), right.mean()

    (value, accuracy), grads = jax.value_and_grad(loss, has_aux=True)(state["params"])
    updates, optimiser = ADAM.update(grads, state["optimiser"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "optimiser": optimiser}, {
        "loss": value,
        "accuracy": accuracy,
    }


def main(epochs=60):
    training, testing = load()
    data = train.batches(training, BATCH)
    run = train.fit(step, init(jax.random.key(0)), data, epochs=epochs)
    guesses = logits(run.state["params"], testing["x"]).argmax(1)
    accuracy = float(jnp.mean(guesses == testing["y"]))
    print(f"{run.steps} steps of training on {TRAINING} images")
    print(f"accuracy on the {len(guesses)} images it has not seen: {accuracy:.1%}")
    run.plot("digits.png", title="Digits")
    print("learning curves: digits.png")
    return run, accuracy


if __name__ == "__main__":
    main(epochs=10 if "--quick" in sys.argv else 60)
