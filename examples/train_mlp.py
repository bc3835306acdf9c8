"""A whole training run as one loop.

The carry is what training changes (the parameters and the optimiser's state), `xs`
holds one minibatch per step, and the `ys` are the losses.  Python runs once, to
describe a single step; the thousand steps then run as one compiled program, without
going back to Python in between.

The network learns y = sin(3x) from noisy samples.  The optimiser is gradient descent
with momentum, written out, because it is two lines.

Run it with `python examples/train_mlp.py`.
"""

from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp

import onescan

WIDTH, STEPS, BATCH = 32, 1000, 64
RATE, MOMENTUM = 0.05, 0.9


class Layer(NamedTuple):
    weights: jax.Array
    bias: jax.Array


class Training(NamedTuple):
    """The carry: everything a step of training changes."""

    params: list[Layer]
    velocity: list[Layer]


class Batch(NamedTuple):
    """One element of xs; stacked, each field has a leading axis of steps."""

    inputs: jax.Array
    targets: jax.Array


def init_params(key):
    sizes = [1, WIDTH, WIDTH, 1]
    pairs = list(pairwise(sizes))
    keys = jax.random.split(key, len(pairs))
    return [
        Layer(jax.random.normal(k, (n, m)) / jnp.sqrt(n), jnp.zeros(m))
        for k, (n, m) in zip(keys, pairs, strict=True)
    ]


def predict(params, inputs):
    *hidden, last = params
    for layer in hidden:
        inputs = jnp.tanh(inputs @ layer.weights + layer.bias)
    return inputs @ last.weights + last.bias


def loss(params, batch):
    return jnp.mean((predict(params, batch.inputs) - batch.targets) ** 2)


def train_step(state, batch):
    """One step: `(carry, x) -> (carry, y)`."""
    value, grads = jax.value_and_grad(loss)(state.params, batch)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v - RATE * g, state.velocity, grads)
    params = jax.tree.map(jnp.add, state.params, velocity)
    return Training(params, velocity), value


def make_batches(key, steps):
    inputs_key, noise_key = jax.random.split(key)
    shape = (steps, BATCH, 1)
    inputs = jax.random.uniform(inputs_key, shape, minval=-1, maxval=1)
    noise = 0.05 * jax.random.normal(noise_key, shape)
    return Batch(inputs, jnp.sin(3 * inputs) + noise)


@jax.jit
def train(params, batches):
    state = Training(params, jax.tree.map(jnp.zeros_like, params))
    state, losses = onescan.scan(train_step, state, batches)
    return state.params, losses


def main(steps=STEPS):
    params_key, data_key = jax.random.split(jax.random.key(0))
    params, losses = train(init_params(params_key), make_batches(data_key, steps))

    print(f"{steps} training steps, compiled as one loop")
    for step in (0, steps // 10, steps // 2, steps - 1):
        print(f"  step {step:4d}   loss {losses[step]:.4f}")
    x = 0.5
    print(f"the network says sin(3 * {x}) is {predict(params, jnp.array([x]))[0]:.3f}")
    print(f"                        and it is {jnp.sin(3 * x):.3f}")
    return params, losses


if __name__ == "__main__":
    main()
