"""A recurrent network that learns to write, letter by letter.

A GRU reads stretches of a text and guesses the next letter; the text is the
documentation of this repository. There are two loops, one inside the other: the steps
of training, by `onescan.train.fit`, and in each of them the letters of a stretch, by
`onescan.scan`. In the end a third loop writes.

Add `--quick` for a short run. The learning curves are saved as `char_gru.png`.

Run it with `python examples/char_gru.py`.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import onescan
from onescan import train

ROOT = Path(__file__).parents[1]
PAGES = "README.md", "docs/gpu.md", "docs/numbers.md", "docs/long-loops.md"
UNITS, BATCH, LENGTH = 128, 32, 48
ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


def load():
    """The letters that occur, and the text as numbers of letters."""
    text = "".join((ROOT / name).read_text() for name in PAGES)
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    return letters, np.array([number[letter] for letter in text], np.int32)


def init(key, count):
    keys = jax.random.split(key, 4)

    def weights(key, *shape):
        return jax.random.normal(key, shape) / shape[0] ** 0.5

    params = {
        "embedding": weights(keys[0], count, 3 * UNITS),  # already times the input's
        "gates": weights(keys[1], UNITS, 2 * UNITS),
        "candidate": weights(keys[2], UNITS, UNITS),
        "out": weights(keys[3], UNITS, count),
        "bias": jnp.zeros(count),
    }
    return {"params": params, "optimiser": ADAM.init(params)}


def cell(params, h, x):
    """One letter: the state of the network before and after it."""
    update, reset = jnp.split(
        jax.nn.sigmoid(x[..., : 2 * UNITS] + h @ params["gates"]), 2, -1
    )
    candidate = jnp.tanh(x[..., 2 * UNITS :] + (reset * h) @ params["candidate"])
    return (1 - update) * h + update * candidate


def logits(params, letters):
    """Guesses of the letter after each of `letters`, [batch, time]."""

    def read(h, x):
        h = cell(params, h, x)
        return h, h

    xs = params["embedding"][letters].swapaxes(0, 1)
    start = jnp.zeros((len(letters), UNITS))
    _, hs = onescan.scan(read, start, xs)
    return (hs @ params["out"] + params["bias"]).swapaxes(0, 1)


def step(state, stretch):
    def loss(params):
        scores = logits(params, stretch[:, :-1])
        labels = jax.nn.one_hot(stretch[:, 1:], scores.shape[-1])
        return optax.softmax_cross_entropy(scores, labels).mean()

    value, grads = jax.value_and_grad(loss)(state["params"])
    updates, optimiser = ADAM.update(grads, state["optimiser"])
    params = optax.apply_updates(state["params"], updates)
    bits = value / np.log(2)
    return {"params": params, "optimiser": optimiser}, {"bits per letter": bits}


@jax.jit
def write(params, key, first):
    """200 letters, each drawn from what the network expects after the last."""

    def draw(carry, key):
        h, letter = carry
        h = cell(params, h, params["embedding"][letter])
        letter = jax.random.categorical(key, 1.5 * (h @ params["out"] + params["bias"]))
        return (h, letter), letter

    keys = jax.random.split(key, 200)
    return onescan.scan(draw, (jnp.zeros(UNITS), first), keys)[1]


def main(steps=1500):
    letters, text = load()
    starts = np.arange(len(text) - LENGTH)
    stretches = jnp.asarray(text[starts[:, None] + np.arange(LENGTH + 1)])
    data = train.batches(stretches, BATCH)
    run = train.fit(step, init(jax.random.key(0), len(letters)), data, steps=steps)
    bits = run.metrics["bits per letter"]
    last = bits[-20:].mean()
    print(f"{run.steps} steps: from {bits[0]:.1f} to {last:.1f} bits per letter")
    written = write(run.state["params"], jax.random.key(1), text[0])
    print("it writes:\n  " + "".join(letters[i] for i in written).replace("\n", "\n  "))
    run.plot("char_gru.png", title="A GRU reads the documentation")
    print("learning curve: char_gru.png")
    return run


if __name__ == "__main__":
    main(steps=60 if "--quick" in sys.argv else 1500)
