"""`fit`: a whole training run, in chunks of a compiled loop.

The device works on one chunk while the metrics of the one before are looked at, and
the batches of the one after are made ready. A run is cut into the same chunks however
often it is interrupted, so that every step is computed by the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import jax
import numpy as np

from onescan.naming import type_name
from onescan.train.arguments import chunk_of, keep_of, source_of
from onescan.train.bar import Bar
from onescan.train.interrupt import Interrupts
from onescan.train.length import chunk_length, size_in_bytes
from onescan.train.logs import Log, last_values, logs_of
from onescan.train.metrics import History, Layout
from onescan.train.prefetch import Prefetched
from onescan.train.program import Programs, programs
from onescan.train.run import Run, Stopped
from onescan.train.sources import Chunk, Position, Source
from onescan.train.state import Divided, divided
from onescan.train.store import NoStore, Store


def fit(
    step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    batches: Any = None,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    chunk: int | str = "auto",
    progress: bool | str = True,
    log: Any = None,
    checkpoint_dir: Any = None,
    checkpoint_every: float = 30.0,
    resume: bool = True,
    keep: int = 3,
    until: Callable[[Any, Any], Any] | None = None,
    seed: int = 0,
) -> Run:
    """Run ``state, metrics = step(state, batch)`` for every batch, as compiled loops.

    Args:
        step: one step of training, a function that JAX can trace. The state it returns
            has the containers, shapes and dtypes of the one it got; the metrics are
            arrays or numbers in any containers.
        state: where training begins: parameters, the optimiser's state, keys, counters,
            in any containers. Your arrays stay as they are.
        batches: `onescan.train.batches(data, size)` for batches of examples; arrays
            with one batch for each step; any iterable of batches, or a function from
            the number of an epoch to one; or None, and `step` gets None.
        steps, epochs: how long; by default once through the batches.
        chunk: steps in one call of the compiled loop. "auto" chooses by what a step
            computes.
        progress: whether to show a bar, or what to write in front of it.
        log: a path that ends in .jsonl or .csv, a function ``(step, metrics)`` that is
            called after every chunk with the number of steps taken and the stacked
            metrics of the chunk, or a list of these.
        checkpoint_dir: a directory of its own for this run, which then survives its
            process: called again, it continues. Needs `pip install onescan[train]`.
        checkpoint_every: seconds from one checkpoint to the next; there is one at the
            end in any case.
        resume: whether to continue a run that is in `checkpoint_dir`; if not, finding
            one is an error.
        keep: how many checkpoints stay.
        until: ``(state, metrics) -> bool``, asked after every step inside the loop; the
            run ends with the first step at which it is true.
        seed: of the order in which `onescan.train.batches` gives the examples.

    Returns:
        A `Run`: `state`, `metrics` (stacked, from the first step on), `steps`,
        `stopped`, and `plot("curves.png")`.

    Ctrl-C ends the run after its chunk, with a checkpoint if there is a directory for
    it; what is returned says ``stopped="interrupted"``.

    >>> import jax, jax.numpy as jnp
    >>> from onescan import train
    >>> def step(slope, batch):
    ...     loss = lambda slope: jnp.mean((slope * batch["x"] - batch["y"]) ** 2)
    ...     value, gradient = jax.value_and_grad(loss)(slope)
    ...     return slope - 0.1 * gradient, {"loss": value}
    >>> x = jnp.linspace(-1, 1, 64)
    >>> data = train.batches({"x": x, "y": 3 * x}, size=16)
    >>> run = train.fit(step, 0.0, data, epochs=50)
    >>> print(f"{run.state:.3f} after {run.steps} steps", run.metrics["loss"].shape)
    3.000 after 200 steps (200,)
    """
    source = source_of(batches, steps, epochs, seed)
    length, keep = chunk_of(chunk), keep_of(keep)
    batch = source.spec()
    tried = divided(step, state, batch)
    store = NoStore()
    if checkpoint_dir is not None:
        store = Store(checkpoint_dir, keep, resume, checkpoint_every)
    held = size_in_bytes(batch) if source.on_host else 0
    length = length or store.chunk or chunk_length(tried.jaxpr, source.total(), held)
    with ExitStack() as stack:
        stack.enter_context(closing(store))
        about = _about(tried, source, length)
        arrays, position, ended = store.open(about, tried.arrays)
        layout = Layout.of(tried.metrics)
        history = History(layout, store.metrics_path, position.steps)
        stack.enter_context(closing(history))
        logs = logs_of(log, layout, position.steps)
        for one in logs:
            stack.enter_context(closing(one))
        bar = stack.enter_context(Bar(progress, source.total(), position.steps))
        if position.steps and progress:
            bar.say(f"resumed after {position.steps} steps, from {checkpoint_dir}")
        training = Training(
            programs(step, tried, source, until),
            store,
            Listeners(layout, history, logs, bar),
            looks_at_ends=until is not None,
        )
        stopped: Stopped = "until"
        if ended is None:
            arrays, position, stopped = training.run(arrays, position, source, length)
        if stopped == "interrupted" and progress:
            kept = f", saved in {checkpoint_dir}" if checkpoint_dir else ""
            bar.say(f"stopped by Ctrl-C after {position.steps} steps{kept}")
        final = tried.division.join(arrays)
        return Run(final, history.stacked(), position.steps, stopped)


class Pending(NamedTuple):
    """A chunk that the device may still be working on."""

    first: int
    metrics: Any
    taken: Any


class Listeners(NamedTuple):
    """Everything that is told the metrics."""

    layout: Layout
    history: History
    logs: list[Log]
    bar: Bar

    def tell(self, chunk: Pending) -> None:
        """Wait for a chunk, and pass its metrics on."""
        taken = int(chunk.taken)
        metrics = jax.tree.map(lambda m: np.asarray(m)[:taken], chunk.metrics)
        self.history.add(metrics, taken)
        for log in self.logs:
            log.add(chunk.first, metrics)
        self.bar.advance(taken, last_values(self.layout, metrics))


class Training(NamedTuple):
    """The loop over chunks."""

    programs: Programs
    store: NoStore
    listeners: Listeners
    looks_at_ends: bool  # whether a chunk may end the run

    def run(
        self, arrays: list[Any], position: Position, source: Source, length: int
    ) -> tuple[list[Any], Position, Stopped]:
        stopped: Stopped = "end"
        pending: Pending | None = None
        with ExitStack() as stack:
            interrupts = stack.enter_context(Interrupts())
            chunks: Iterator[Chunk] = source.chunks(position, length)
            if source.on_host:
                ahead = Prefetched(chunks, stop=interrupts.asked)
                chunks = stack.enter_context(ahead)
            for chunk in chunks:
                first = position.steps
                arrays, metrics, taken, ended = self.programs(
                    arrays, first, chunk.data, chunk.steps
                )
                if pending is not None:
                    self.listeners.tell(pending)
                pending, position = Pending(first, metrics, taken), chunk.after
                if self.looks_at_ends and bool(ended):
                    position = position._replace(steps=first + int(taken))
                    stopped = "until"
                    break
                if interrupts.asked():
                    break
                if self.store.due():
                    self.listeners.tell(pending)
                    pending = None
                    self.save(arrays, position, None)
            if stopped == "end" and interrupts.asked():
                stopped = "interrupted"
            if pending is not None:
                self.listeners.tell(pending)
            self.save(arrays, position, "until" if stopped == "until" else None)
            self.store.wait()
        return arrays, position, stopped

    def save(self, arrays: list[Any], position: Position, ended: str | None) -> None:
        self.listeners.history.sync()
        self.store.save(arrays, position, ended)


def _about(tried: Divided, source: Source, length: int) -> dict[str, Any]:
    """What a run is, for the directory that it resumes from."""
    layout = Layout.of(tried.metrics)
    paths = tried.division.array_paths()
    types = (type_name(jax.typeof(array)) for array in tried.arrays)
    names = zip(layout.names, map(type_name, layout.specs), strict=True)
    return {
        "chunk": length,
        "state": list(map(list, zip(paths, types, strict=True))),
        "metrics": [[f"metrics/{name}", kind] for name, kind in names],
        "batches": source.description(),
    }
