"""The same models and steps as training_models.py, as a PyTorch user writes them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from training_models import (
    BETA1,
    BETA2,
    CLIP,
    DECAY,
    EPSILON,
    GAMMA,
    MOMENTS,
    RATE,
    Model,
    push,
)

Step = Callable[[int], Any]


def available() -> bool:
    return find_spec("torch") is not None


def stepper(model: Model, gpu: bool, compiled: bool) -> tuple[Step, Callable[[], None]]:
    """``step(i) -> loss``, which trains on batch i, and how to wait for the device."""
    torch: Any = import_module("torch")
    device = "cuda" if gpu else "cpu"
    params = {
        name: torch.tensor(value, device=device, requires_grad=True)
        for name, value in model.params.items()
    }
    batches = {
        name: torch.tensor(_indices(value), device=device)
        for name, value in model.batches.items()
    }
    count = len(next(iter(batches.values())))
    adam = torch.optim.Adam(params.values(), RATE, (BETA1, BETA2), EPSILON)
    maybe = torch.compile if compiled else lambda f: f
    if model.name == "ppo":
        run = _ppo(torch, params, adam, maybe)
    else:
        loss = maybe(LOSSES[model.name](torch))
        update = maybe(adam.step) if compiled else adam.step

        def run(batch: Any) -> Any:
            adam.zero_grad()
            value = loss(params, batch)
            value.backward()
            update()
            return value.detach()

    def step(i: int) -> Any:
        return run({name: leaf[i % count] for name, leaf in batches.items()})

    return step, torch.cuda.synchronize if gpu else lambda: None


def _indices(value: np.ndarray) -> np.ndarray:
    return value.astype(np.int64) if value.dtype == np.int32 else value


def _mlp(torch: Any, params: Any, x: Any, layers: int) -> Any:
    for i in range(layers):
        x = torch.addmm(params[f"b{i}"], x, params[f"w{i}"])
        x = torch.relu(x) if i < layers - 1 else x
    return x


def _regression(torch: Any) -> Any:
    def loss(params: Any, batch: Any) -> Any:
        return ((_mlp(torch, params, batch["x"], 3) - batch["y"]) ** 2).mean()

    return loss


def _classifier(torch: Any) -> Any:
    def loss(params: Any, batch: Any) -> Any:
        scores = _mlp(torch, params, batch["x"], 3)
        return torch.nn.functional.cross_entropy(scores, batch["y"])

    return loss


def _convolutions(torch: Any) -> Any:
    functional = torch.nn.functional

    def loss(params: Any, batch: Any) -> Any:
        h = functional.conv2d(batch["x"], params["k0"], params["c0"], 1, 1)
        h = functional.conv2d(torch.relu(h), params["k1"], params["c1"], 2, 1)
        h = torch.relu(h).flatten(1)
        scores = torch.addmm(params["b0"], h, params["w0"])
        return functional.cross_entropy(scores, batch["y"])

    return loss


def _language(torch: Any) -> Any:
    def loss(params: Any, batch: Any) -> Any:
        text = batch["text"]
        xs = params["embedding"][text[:, :-1]]
        h = xs.new_zeros(xs.shape[0], xs.shape[2] // 3)
        units = h.shape[1]
        hs = []
        for t in range(xs.shape[1]):
            x = xs[:, t]
            gates = torch.sigmoid(x[:, : 2 * units] + h @ params["gates"])
            update, reset = gates[:, :units], gates[:, units:]
            new = torch.tanh(x[:, 2 * units :] + (reset * h) @ params["candidate"])
            h = (1 - update) * h + update * new
            hs.append(h)
        scores = torch.stack(hs, 1) @ params["w0"] + params["b0"]
        return torch.nn.functional.cross_entropy(
            scores.flatten(0, 1), text[:, 1:].flatten()
        )

    return loss


LOSSES = {
    "mlp16": _regression,
    "mlp": _classifier,
    "cnn": _convolutions,
    "gru": _language,
}


def _ppo(torch: Any, params: Any, adam: Any, maybe: Any) -> Any:
    def judge(seen: Any) -> Any:
        hidden = torch.tanh(seen @ params["w0"] + params["b0"])
        return hidden @ params["w1"] + params["b1"]

    def act(world: Any, draws: Any, fresh: Any) -> Any:
        scores = judge(world.T)
        right = torch.sigmoid(scores[:, 1] - scores[:, 0])
        action = (draws < right).float()
        after = push(world, action, torch)
        over = (after[0].abs() > 2.4) | (after[2].abs() > 0.2095)
        log = torch.log(torch.where(action == 1, right, 1 - right))
        return torch.where(over, fresh, after), (
            world.T,
            action,
            log,
            scores[:, 2],
            over.float(),
        )

    def back(values: Any, overs: Any, last: Any) -> Any:
        advantage, following, found = torch.zeros_like(last), last, []
        for t in reversed(range(MOMENTS)):
            alive = 1 - overs[t]
            error = 1 + GAMMA * following * alive - values[t]
            advantage = error + GAMMA * DECAY * alive * advantage
            following = values[t]
            found.append(advantage)
        return torch.stack(found[::-1])

    def loss(world: Any, action: Any, log: Any, gain: Any, target: Any) -> Any:
        scores = judge(world)
        logs = torch.log_softmax(scores[:, :2], -1)
        chosen = torch.where(action == 1, logs[:, 1], logs[:, 0])
        ratio = torch.exp(chosen - log)
        gain = (gain - gain.mean()) / (gain.std(correction=0) + 1e-8)
        limited = torch.clip(ratio, 1 - CLIP, 1 + CLIP)
        entropy = -(torch.exp(logs) * logs).sum(-1).mean()
        critic = ((scores[:, 2] - target) ** 2).mean()
        actor = -torch.minimum(ratio * gain, limited * gain).mean()
        return actor + 0.5 * critic - 0.01 * entropy

    act, back, loss = maybe(act), maybe(back), maybe(loss)

    def run(batch: Any) -> Any:
        world, moments = batch["world"], []
        with torch.no_grad():
            for t in range(MOMENTS):
                world, moment = act(world, batch["draws"][t], batch["fresh"][t])
                moments.append(moment)
            worlds, actions, logs, values, overs = map(
                torch.stack, zip(*moments, strict=True)
            )
            gains = back(values, overs, judge(world.T)[:, 2])
            kept = (worlds, actions, logs, gains, gains + values)
            kept = [leaf.flatten(0, 1) for leaf in kept]
        total = 0.0
        for part in batch["parts"]:
            adam.zero_grad()
            value = loss(*(leaf[part] for leaf in kept))
            value.backward()
            adam.step()
            total = total + value.detach()
        return total / len(batch["parts"])

    return run
