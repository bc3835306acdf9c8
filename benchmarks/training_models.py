"""Small models and their training steps, in JAX: what training.py measures.

Every step draws what it needs from its batch, so that another framework, given the
same parameters and batches, has the same losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import onescan

RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Model:
    """Parameters and batches as NumPy arrays, and the loss of a batch."""

    name: str
    params: dict[str, np.ndarray]
    batches: dict[str, np.ndarray]  # stacked
    step: Callable[[Any, Any], tuple[Any, Any]]

    def state(self) -> Any:
        params = jax.tree.map(jnp.asarray, self.params)
        return begin(params)


def begin(params: Any) -> Any:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "m": zeros, "v": zeros, "t": jnp.int32(0)}


def adam(state: Any, grads: Any) -> Any:
    """Adam, as optax and PyTorch have it."""
    t = state["t"] + 1
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, state["v"], grads)
    first, second = 1 - BETA1**t, 1 - BETA2**t
    params = jax.tree.map(
        lambda p, m, v: p - RATE * (m / first) / (jnp.sqrt(v / second) + EPSILON),
        state["params"],
        m,
        v,
    )
    return {"params": params, "m": m, "v": v, "t": t}


def by_gradient(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        value, grads = jax.value_and_grad(loss)(state["params"], batch)
        return adam(state, grads), value

    return step


def cross_entropy(scores: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(scores)
    return -jnp.take_along_axis(logs, labels[..., None], -1).mean()


def _normal(rng: Any, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * rng.normal(size=shape)).astype(np.float32)


def _dense(rng: Any, sizes: list[int]) -> dict[str, np.ndarray]:
    params = {}
    for i, (rows, columns) in enumerate(pairwise(sizes)):
        params[f"w{i}"] = _normal(rng, rows, columns, scale=rows**-0.5)
        params[f"b{i}"] = np.zeros(columns, np.float32)
    return params


def _mlp(params: Any, x: Any, layers: int) -> Any:
    for i in range(layers):
        x = x @ params[f"w{i}"] + params[f"b{i}"]
        x = jnp.maximum(x, 0) if i < layers - 1 else x
    return x


def regression() -> Model:
    """The MLP 16-64-64-1 of the goal: 6 us a step."""
    rng = np.random.default_rng(0)
    x = _normal(rng, 64, 32, 16)
    y = np.sin(x.sum(-1, keepdims=True))

    def loss(params: Any, batch: Any) -> Any:
        return jnp.mean((_mlp(params, batch["x"], 3) - batch["y"]) ** 2)

    params = _dense(rng, [16, 64, 64, 1])
    return Model("mlp16", params, {"x": x, "y": y}, by_gradient(loss))


def classifier() -> Model:
    rng = np.random.default_rng(1)
    x = _normal(rng, 64, 64, 64)
    y = (x[..., :10].argmax(-1)).astype(np.int32)

    def loss(params: Any, batch: Any) -> Any:
        return cross_entropy(_mlp(params, batch["x"], 3), batch["y"])

    params = _dense(rng, [64, 128, 128, 10])
    return Model("mlp", params, {"x": x, "y": y}, by_gradient(loss))


def convolutions() -> Model:
    """Two convolutions of 3 by 3 on images of 8 by 8, and a dense layer."""
    rng = np.random.default_rng(2)
    x = _normal(rng, 64, 32, 1, 8, 8)
    y = (x.reshape(64, 32, 64)[..., :10].argmax(-1)).astype(np.int32)

    def loss(params: Any, batch: Any) -> Any:
        h = batch["x"]
        for i, stride in ((0, 1), (1, 2)):
            h = jax.lax.conv_general_dilated(
                h, params[f"k{i}"], (stride, stride), ((1, 1), (1, 1))
            )
            h = jnp.maximum(h + params[f"c{i}"][:, None, None], 0)
        scores = h.reshape(len(h), -1) @ params["w0"] + params["b0"]
        return cross_entropy(scores, batch["y"])

    params = _dense(rng, [32 * 16, 10])
    params |= {
        "k0": _normal(rng, 16, 1, 3, 3, scale=1 / 3),
        "c0": np.zeros(16, np.float32),
        "k1": _normal(rng, 32, 16, 3, 3, scale=1 / 12),
        "c1": np.zeros(32, np.float32),
    }
    return Model("cnn", params, {"x": x, "y": y}, by_gradient(loss))


def language() -> Model:
    """A GRU of 128 units on stretches of 32 letters."""
    letters, units, batch, time = 64, 128, 16, 32
    rng = np.random.default_rng(3)
    text = rng.integers(0, letters, (64, batch, time + 1)).astype(np.int32)

    def loss(params: Any, batch: Any) -> Any:
        def read(h: Any, x: Any) -> tuple[Any, Any]:
            gates = jax.nn.sigmoid(x[:, : 2 * units] + h @ params["gates"])
            update, reset = gates[:, :units], gates[:, units:]
            new = jnp.tanh(x[:, 2 * units :] + (reset * h) @ params["candidate"])
            h = (1 - update) * h + update * new
            return h, h

        xs = params["embedding"][batch["text"][:, :-1]].swapaxes(0, 1)
        start = jnp.zeros((xs.shape[1], units))
        _, hs = onescan.scan(read, start, xs)
        scores = hs @ params["w0"] + params["b0"]
        return cross_entropy(scores, batch["text"][:, 1:].swapaxes(0, 1))

    params = _dense(rng, [units, letters]) | {
        "embedding": _normal(rng, letters, 3 * units),
        "gates": _normal(rng, units, 2 * units, scale=units**-0.5),
        "candidate": _normal(rng, units, units, scale=units**-0.5),
    }
    return Model("gru", params, {"text": text}, by_gradient(loss))


WORLDS, MOMENTS, PASSES, PARTS = 16, 32, 2, 2
GAMMA, DECAY, CLIP = 0.99, 0.95, 0.2


def push(world: Any, action: Any, xp: Any) -> Any:
    """Cart-pole: one moment of all worlds, in JAX or in PyTorch."""
    x, v, angle, turn = world[0], world[1], world[2], world[3]
    force = 20.0 * action - 10.0
    sin, cos = xp.sin(angle), xp.cos(angle)
    pushed = (force + 0.05 * turn**2 * sin) / 1.1
    bent = (9.8 * sin - cos * pushed) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    moved = pushed - 0.05 * bent * cos / 1.1
    return xp.stack(
        [x + 0.02 * v, v + 0.02 * moved, angle + 0.02 * turn, turn + 0.02 * bent]
    )


def ppo() -> Model:
    """A step acts for 32 moments in 16 worlds, then learns from them four times."""
    rng = np.random.default_rng(4)
    seen = WORLDS * MOMENTS
    orders = [rng.permutation(seen) for _ in range(8 * PASSES)]
    batches = {
        "draws": rng.uniform(size=(8, MOMENTS, WORLDS)).astype(np.float32),
        "fresh": _normal(rng, 8, MOMENTS, 4, WORLDS, scale=0.03),
        "parts": np.int32(orders).reshape(8, PASSES * PARTS, seen // PARTS),
        "world": _normal(rng, 8, 4, WORLDS, scale=0.03),
    }
    params = _dense(rng, [4, 64, 3])
    return Model("ppo", params, batches, _ppo_step)


def _ppo_step(state: Any, batch: Any) -> tuple[Any, Any]:
    params = state["params"]

    def act(world: Any, x: Any) -> tuple[Any, Any]:
        scores = _judge(params, world.T)
        right = jax.nn.sigmoid(scores[:, 1] - scores[:, 0])
        action = (x["draws"] < right).astype(jnp.float32)
        after = push(world, action, jnp)
        over = (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 0.2095)
        log = jnp.log(jnp.where(action == 1, right, 1 - right))
        moment = {"world": world.T, "action": action, "log": log}
        moment |= {"value": scores[:, 2], "over": over.astype(jnp.float32)}
        return jnp.where(over, x["fresh"], after), moment

    xs = {"draws": batch["draws"], "fresh": batch["fresh"]}
    world, moments = onescan.scan(act, batch["world"], xs)

    def back(carry: Any, x: Any) -> tuple[Any, Any]:
        advantage, following = carry
        alive = 1 - x["over"]
        error = 1 + GAMMA * following * alive - x["value"]
        advantage = error + GAMMA * DECAY * alive * advantage
        return (advantage, x["value"]), advantage

    last = _judge(params, world.T)[:, 2]
    start = jnp.zeros_like(last), last
    _, advantage = onescan.scan(back, start, moments, reverse=True)
    moments |= {"advantage": advantage, "target": advantage + moments["value"]}
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), moments)

    def learn(state: Any, part: Any) -> tuple[Any, Any]:
        chosen = jax.tree.map(lambda leaf: leaf[part], flat)
        value, grads = jax.value_and_grad(_ppo_loss)(state["params"], chosen)
        return adam(state, grads), value

    state, losses = onescan.scan(learn, state, batch["parts"])
    return state, losses.mean()


def _judge(params: Any, seen: Any) -> Any:
    hidden = jnp.tanh(seen @ params["w0"] + params["b0"])
    return hidden @ params["w1"] + params["b1"]


def _ppo_loss(params: Any, part: Any) -> Any:
    scores = _judge(params, part["world"])
    logs = jax.nn.log_softmax(scores[:, :2])
    log = jnp.where(part["action"] == 1, logs[:, 1], logs[:, 0])
    ratio = jnp.exp(log - part["log"])
    gain = part["advantage"]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    limited = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
    critic = jnp.mean((scores[:, 2] - part["target"]) ** 2)
    actor = -jnp.minimum(ratio * gain, limited * gain).mean()
    return actor + 0.5 * critic - 0.01 * entropy


MODELS = {
    "mlp16": regression,
    "mlp": classifier,
    "cnn": convolutions,
    "gru": language,
    "ppo": ppo,
}
