"""Batches from any Python iterable: read on the host, stacked into chunks.

An iterator is read once. Something that can be iterated again (a list would be taken
as arrays, so mostly a loader of some library) is, once for each epoch. A function is
called with the number of the epoch and gives that epoch's batches.

A run that resumes skips what it has seen: by the iterable's own ``skip(count)``, which
returns an iterable without its first `count` batches, where it has one, and otherwise
by reading them again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from onescan.errors import ScanTypeError, ScanValueError
from onescan.naming import leaf_paths
from onescan.train.sources import Chunk, Position


@dataclass
class Iterated:
    """Batches of an iterable, an iterator, or a function from epoch to iterable."""

    origin: Any
    steps: int | None
    epochs: int | None
    on_host = True
    _first: list[Any] = field(default_factory=list, repr=False)  # read from an iterator

    def description(self) -> dict[str, Any]:
        return {}

    def total(self) -> int | None:
        if self.steps is not None:
            return self.steps
        if self.epochs is not None and hasattr(self.origin, "__len__"):
            return len(self.origin) * self.epochs
        return None

    def spec(self) -> Any:
        """The types of the first batch."""
        for batch in self._of_epoch(0):
            if self._is_iterator():
                self._first = [batch]
            return jax.tree.map(_type_of, _as_arrays(batch))
        raise ScanValueError(
            "onescan.train.fit: batches is empty, so there is nothing to train on."
        )

    def chunks(self, start: Position, length: int) -> Iterator[Chunk]:
        left = None if self.steps is None else self.steps - start.steps
        stack: list[Any] = []
        after = start
        for after_batch, batch in itertools.islice(self._epochs(start), left):
            if stack and _kind(stack[0]) != _kind(batch):
                yield _stacked(stack, after)  # such as a smaller last batch
                stack = []
            stack.append(batch)
            after = Position(after.steps + 1, *after_batch)
            if len(stack) == length:
                yield _stacked(stack, after)
                stack = []
        if stack:
            yield _stacked(stack, after)

    def xs(self, data: Any, first: Any, length: int) -> Any:
        return data

    def batch(self, data: Any, x: Any) -> Any:
        return x

    def without_data(self) -> Iterated:
        return Iterated(None, self.steps, self.epochs)

    def _epochs(self, start: Position) -> Iterator[tuple[tuple[int, int], Any]]:
        """Each batch, with the epoch and the number of the one that follows it."""
        epoch, skip = start.epoch, start.batch
        while self.epochs is None or epoch < self.epochs:
            number = skip
            for number, batch in enumerate(self._skipped(epoch, skip), skip + 1):
                yield (epoch, number), _as_arrays(batch)
            if self._is_iterator() or number == 0:
                return  # used up, or nothing in an epoch
            epoch, skip = epoch + 1, 0

    def _skipped(self, epoch: int, count: int) -> Iterable[Any]:
        """An epoch without its first batches."""
        batches = self._of_epoch(epoch)
        if count == 0:
            return itertools.chain(self._first, batches)
        skip: Callable[[int], Any] | None = getattr(batches, "skip", None)
        if skip is not None:
            return skip(count - len(self._first))
        rest = itertools.chain(self._first, batches)
        if (found := sum(1 for _ in itertools.islice(rest, count))) < count:
            raise ScanValueError(
                f"onescan.train.fit: the run to resume has seen {count} batches of "
                f"epoch {epoch}, but batches ends after {found}. Give the same batches "
                "in the same order."
            )
        return rest

    def _of_epoch(self, epoch: int) -> Any:
        return self.origin(epoch) if callable(self.origin) else self.origin

    def _is_iterator(self) -> bool:
        return not callable(self.origin) and iter(self.origin) is self.origin


def _as_arrays(batch: Any) -> Any:
    arrays = jax.tree.map(np.asarray, batch)
    for path, leaf in zip(
        leaf_paths("batch", arrays), jax.tree.leaves(arrays), strict=True
    ):
        if leaf.dtype.kind in "OUSM":
            raise ScanTypeError(
                f"onescan.train.fit: {path} of the batches is {leaf!r}, which is not "
                "an array of numbers."
            )
    return arrays


def _type_of(leaf: np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))


def _kind(batch: Any) -> Any:
    leaves, structure = jax.tree.flatten(batch)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _stacked(batches: list[Any], after: Position) -> Chunk:
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
    return Chunk(len(batches), jax.device_put(stacked), after)
