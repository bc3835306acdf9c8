"""Training steps per second: `fit`, stock JAX, a Python loop, PyTorch.

    python benchmarks/training.py            all models on the CPU
    python benchmarks/training.py --gpu      on a GPU, whose torch may be there too
        --quick       fewer rounds
        --only mlp16  one model (mlp16, mlp, cnn, gru, ppo)
        --no-torch    without PyTorch, also where it can be imported
        --no-compile  without torch.compile, which takes a minute for each model
        --write       put the table into benchmarks/training.md

Every way trains the same model from the same parameters on the same batches; the losses
of the first steps are compared before anything is timed. Times leave out compiling,
which is told apart. The last table is one loop without `fit`: the MLP 16-64-64-1.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
import training_torch
from timing import in_turns
from training_models import MODELS, Model, regression

import onescan
from onescan import train

COMPARED = 10  # steps whose losses must agree
TITLES = {
    "mlp16": "MLP 16-64-64-1, batch 32",
    "mlp": "MLP 64-128-128-10, batch 64",
    "cnn": "CNN on 8x8 images, batch 32",
    "gru": "GRU language model, 128 units, 16 x 32 letters",
    "ppo": "PPO on cart-pole, 16 worlds x 32 moments",
}
WAYS = ("fit", "fit, stock JAX", "jitted step", "PyTorch", "torch.compile")
PAGE = Path(__file__).with_name("training.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.gpu != (jax.default_backend() == "gpu"):
        parser.error(f"the default device is a {jax.default_backend()}")
    torch = ["PyTorch"] if options.no_compile else ["PyTorch", "torch.compile"]
    if options.no_torch or not training_torch.available():
        torch = []
    rounds, seconds = (2, 1.0) if options.quick else (4, 2.0)
    rows = []
    for name in [options.only] if options.only else MODELS:
        model = MODELS[name]()
        ways = measured(model, options.gpu, torch, rounds, seconds)
        rows.append(row(TITLES[name], ways))
        print(rows[-1], flush=True)
    text = "\n".join(
        [
            machine(options.gpu),
            "",
            "Steps per second, and in brackets the seconds until the first is done:",
            "",
            f"| model | {' | '.join(WAYS)} |",
            "|---" * (len(WAYS) + 1) + "|",
            *rows,
        ]
    )
    if options.only in (None, "mlp16"):
        text += "\n\n" + one_loop(seconds)
    print("\n" + text)
    if options.write:
        write("gpu" if options.gpu else "cpu", text)


def measured(
    model: Model, gpu: bool, torch: list[str], rounds: int, seconds: float
) -> dict[str, tuple[float, float]]:
    """Steps per second and seconds to begin, by each way that there is."""
    data = jax.tree.map(jnp.asarray, model.batches)
    steps = {
        "fit": FitSteps(model, data, "auto"),
        "fit, stock JAX": FitSteps(model, data, "xla"),
        "jitted step": JittedSteps(model, data),
    }
    for name in torch:
        steps[name] = TorchSteps(model, gpu, compiled=name != "PyTorch")
    expected: np.ndarray | None = None
    for name, way in list(steps.items()):
        try:
            losses = way.losses(COMPARED)
        except Exception as error:  # a torch.compile without its compiler, say
            print(f"{model.name}: {name} fails: {type(error).__name__}: {error}"[:300])
            del steps[name]
            continue
        expected = losses if expected is None else expected
        # on a GPU, products are rounded to fewer bits, by each framework in its way
        np.testing.assert_allclose(losses, expected, rtol=3e-2 if gpu else 1e-3)
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, way in steps.items():
            rates[name].append(way.rate(seconds / rounds))
    return {name: (median(rates[name]), way.begun) for name, way in steps.items()}


class FitSteps:
    """`fit`, on one engine."""

    def __init__(self, model: Model, data: object, engine: onescan.switches.Engine):
        self.model, self.data, self.engine = model, data, engine
        self.begun = 0.0
        self.guess = 1000.0

    def losses(self, count: int) -> np.ndarray:
        start = time.perf_counter()
        losses = self.fit(count).metrics
        self.begun = time.perf_counter() - start
        return losses

    def rate(self, seconds: float) -> float:
        """From the end of the first chunk, which compiles, to the end of the last."""
        stamps: list[tuple[int, float]] = []
        mark = lambda step, _: stamps.append((step, time.perf_counter()))
        chunk = max(1, int(self.guess * seconds / 4))
        while True:
            stamps.clear()
            self.fit(6 * chunk, chunk=chunk, log=mark)
            (first, began), (last, ended) = stamps[1], stamps[-1]
            rate = (last - first) / (ended - began)
            self.guess = rate
            if ended - began > seconds / 4:
                return rate
            chunk = max(2 * chunk, int(rate * seconds / 4))

    def fit(self, steps: int, **options: object) -> train.Run:
        with onescan.engine(self.engine):
            return train.fit(
                self.model.step,
                self.model.state(),
                self.data,
                steps=steps,
                progress=False,
                **options,
            )


class LoopSteps:
    """A step that Python calls again and again."""

    begun = 0.0
    done = 0
    step: Callable[[int], object]
    wait: Callable[[object], object]

    def losses(self, count: int) -> np.ndarray:
        start = time.perf_counter()
        found = [float(self.step(0))]
        self.begun = time.perf_counter() - start
        found += [float(self.step(i)) for i in range(1, count)]
        self.done = count
        return np.array(found)

    def rate(self, seconds: float) -> float:
        count, taken = 1, 0.0
        while taken < seconds / 2:
            count *= 2
            start = time.perf_counter()
            for _ in range(count):
                last = self.step(self.done)
                self.done += 1
            self.wait(last)
            taken = time.perf_counter() - start
        return count / taken


class JittedSteps(LoopSteps):
    """The step compiled by JAX, its state given away."""

    def __init__(self, model: Model, data: dict[str, jax.Array]) -> None:
        self.state = jax.tree.map(jnp.copy, model.state())
        count = len(next(iter(data.values())))
        batches = [jax.tree.map(lambda leaf: leaf[i], data) for i in range(count)]
        # stock JAX: what people have without onescan
        with onescan.engine("xla"):
            compiled = jax.jit(model.step, donate_argnums=0)
            compiled = compiled.lower(self.state, batches[0]).compile()

        def step(i: int) -> object:
            self.state, loss = compiled(self.state, batches[i % count])
            return loss

        self.step, self.wait = step, jax.block_until_ready


class TorchSteps(LoopSteps):
    def __init__(self, model: Model, gpu: bool, compiled: bool) -> None:
        self.step, wait = training_torch.stepper(model, gpu, compiled)
        self.wait = lambda _: wait()


def row(title: str, ways: dict[str, tuple[float, float]]) -> str:
    cells = []
    for way in WAYS:
        rate, begun = ways.get(way, (0.0, 0.0))
        cells.append(f"{rate:,.0f} ({begun:.1f})" if rate else "-")
    return f"| {title} | {' | '.join(cells)} |"


def one_loop(seconds: float) -> str:
    """A loop over 2,000 steps of the MLP 16-64-64-1, by both engines."""
    model = regression()
    count = 2000
    chosen = np.arange(count) % len(model.batches["x"])
    batches = {k: jnp.asarray(v[chosen]) for k, v in model.batches.items()}
    loop = jax.jit(lambda state, xs: onescan.scan(model.step, state, xs))
    state = model.state()
    runs = {}
    for engine in ("xla", "auto"):
        with onescan.engine(engine):
            run = loop.lower(state, batches).compile()
        runs[engine] = lambda run=run: run(state, batches)
    losses = [np.asarray(run()[1]) for run in runs.values()]
    np.testing.assert_allclose(*losses, rtol=0.2, atol=1e-2)  # 2,000 steps apart
    times = in_turns(runs, 3 * seconds, jax.block_until_ready)
    stock, ours = (times[engine].seconds / count * 1e6 for engine in ("xla", "auto"))
    return "\n".join(
        [
            f"{count} steps of the MLP 16-64-64-1 as one loop, microseconds a step:",
            "",
            "| `jax.lax.scan` | `onescan.scan` | goal |",
            "|---|---|---|",
            f"| {stock:.1f} | {ours:.1f} | 6 |",
        ]
    )


def machine(gpu: bool) -> str:
    device = jax.devices()[0].device_kind if gpu else _processor()
    kept = [f"JAX {jax.__version__}", f"Python {platform.python_version()}"]
    if training_torch.available():
        import torch

        kept.append(f"PyTorch {torch.__version__}")
    command = f"python benchmarks/training.py{' --gpu' if gpu else ''}"
    return f"{device}, {', '.join(kept)}, by `{command}`."


def _processor() -> str:
    import os

    cores = len(os.sched_getaffinity(0))
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{cores} cores of {line.split(':')[1].strip()}"
    return f"{cores} cores of {platform.machine()}"


def write(section: str, text: str) -> None:
    """Replace one section of the page, which its comments mark."""
    page = PAGE.read_text()
    begin, end = f"<!-- {section} -->\n", f"<!-- end of {section} -->"
    head, rest = page.split(begin)
    PAGE.write_text(f"{head}{begin}\n{text}\n\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main()
