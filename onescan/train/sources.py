"""Where the batches of a training run come from.

A source tells the type of a batch and cuts the run into chunks. What a chunk brings
with it (`Chunk.data`) goes into the compiled program, where `xs` makes of it what the
loop runs over, and `batch` what one step sees. Arrays on the device go in whole, every
time, and a step picks its examples from them; host arrays bring only their chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from onescan.train.shuffle import shuffled


class Position(NamedTuple):
    """How far a run is: steps in all, and where it stands in its source."""

    steps: int = 0
    epoch: int = 0
    batch: int = 0  # of this epoch


class Chunk(NamedTuple):
    """Some steps of a run: how many, what they need, and where the run is then."""

    steps: int
    data: Any
    after: Position


class Source(Protocol):
    """What `fit` asks of its batches."""

    on_host: bool  # whether chunks are made ahead, on a thread

    def description(self) -> dict[str, Any]:
        """What must be the same when a run resumes."""
        ...

    def total(self) -> int | None:
        """The number of steps, where it is known before the end."""
        ...

    def spec(self) -> Any:
        """The types of one batch."""
        ...

    def chunks(self, start: Position, length: int) -> Iterator[Chunk]:
        """The rest of the run."""
        ...

    def xs(self, data: Any, first: Any, length: int) -> Any:
        """What the loop of a chunk runs over, inside the compiled program."""
        ...

    def batch(self, data: Any, x: Any) -> Any:
        """What one step sees, inside the loop."""
        ...

    def without_data(self) -> Source:
        """The same as far as `xs` and `batch` go, holding on to nothing."""
        ...


@dataclass(frozen=True)
class Batches:
    """Examples in arrays, and how to make batches of them; see `batches`."""

    data: Any
    size: int | None  # None: the arrays are stacked batches, one for each step
    shuffle: bool = False
    seed: int = 0
    steps: int = 0  # of the whole run

    on_host = False

    def examples(self) -> int:
        return np.shape(jax.tree.leaves(self.data)[0])[0]

    def steps_per_epoch(self) -> int:
        return self.examples() // (self.size or 1)

    def description(self) -> dict[str, Any]:
        kind = {"examples": self.examples(), "size": self.size}
        return kind | ({"shuffle": True, "seed": self.seed} if self.shuffle else {})

    def total(self) -> int:
        return self.steps

    def spec(self) -> Any:
        lead = () if self.size is None else (self.size,)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                lead + np.shape(leaf)[1:], jax.dtypes.canonicalize_dtype(leaf.dtype)
            ),
            self.data,
        )

    def chunks(self, start: Position, length: int) -> Iterator[Chunk]:
        for first in range(start.steps, self.steps, length):
            steps = min(length, self.steps - first)
            after = Position(first + steps, *divmod(first + steps, self._per_epoch()))
            yield Chunk(steps, self._of_chunk(first, steps), after)

    def xs(self, data: Any, first: Any, length: int) -> Any:
        return self._examples_of(first + jnp.arange(length, dtype=jnp.int32), jnp)

    def batch(self, data: Any, x: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.at[x].get(mode="promise_in_bounds"), data)

    def without_data(self) -> Batches:
        types = lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype)
        return replace(self, data=jax.tree.map(types, self.data))

    def _per_epoch(self) -> int:
        return self.steps_per_epoch()

    def _of_chunk(self, first: int, steps: int) -> Any:
        return self.data

    def _examples_of(self, steps: Any, xp: Any) -> Any:
        """Which examples each of these steps sees: [steps, size], or [steps]."""
        epoch, turn = xp.divmod(steps, self._per_epoch())
        if self.size is not None:
            turn = turn[:, None] * self.size + xp.arange(self.size, dtype=np.int32)
            epoch = epoch[:, None]
        if not self.shuffle:
            return turn
        return shuffled(turn, epoch, self.examples(), self.seed)


@dataclass(frozen=True)
class HostBatches(Batches):
    """The same in NumPy arrays, which stay on the host; each chunk brings its own."""

    on_host = True

    def xs(self, data: Any, first: Any, length: int) -> Any:
        return data

    def batch(self, data: Any, x: Any) -> Any:
        return x

    def _of_chunk(self, first: int, steps: int) -> Any:
        taken = self._examples_of(np.arange(first, first + steps), np)
        return jax.device_put(jax.tree.map(lambda leaf: leaf[taken], self.data))


@dataclass(frozen=True)
class NoBatches:
    """A run without data, such as one that makes its own by acting in a world."""

    steps: int
    on_host = False

    def description(self) -> dict[str, Any]:
        return {}

    def total(self) -> int:
        return self.steps

    def spec(self) -> Any:
        return None

    def chunks(self, start: Position, length: int) -> Iterator[Chunk]:
        for first in range(start.steps, self.steps, length):
            steps = min(length, self.steps - first)
            yield Chunk(steps, None, Position(first + steps))

    def xs(self, data: Any, first: Any, length: int) -> Any:
        return None

    def batch(self, data: Any, x: Any) -> Any:
        return None

    def without_data(self) -> NoBatches:
        return self


def placed(batches: Batches, steps: int, seed: int) -> Batches:
    """On the device, if any of the arrays is there already; else on the host."""
    leaves = jax.tree.leaves(batches.data)
    if any(isinstance(leaf, jax.Array) for leaf in leaves):
        device = jax.tree.map(jnp.asarray, batches.data)
        return replace(batches, data=device, steps=steps, seed=seed)
    host = jax.tree.map(np.asarray, batches.data)
    return HostBatches(host, batches.size, batches.shuffle, seed, steps)
