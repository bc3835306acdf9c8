"""The metrics of a run: their names, and all of them in order.

With a file, what was measured survives the process: one record of fixed size for each
step, appended chunk by chunk. A run that resumes at step n keeps the first n.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from onescan.errors import CheckpointError


@dataclass(frozen=True)
class Layout:
    """The metrics of one step: containers, names and types."""

    structure: Any
    names: tuple[str, ...]
    specs: tuple[Any, ...]

    @classmethod
    def of(cls, metrics: Any) -> Layout:
        """Of metrics, or of their types.

        >>> Layout.of({"loss": 1.0, "accuracy": {"train": 0.5}}).names
        ('accuracy/train', 'loss')
        """
        leaves, structure = tree_flatten_with_path(metrics)
        names = [keystr(path, simple=True, separator="/") for path, _ in leaves]
        specs = (jax.ShapeDtypeStruct(np.shape(x), _dtype(x)) for _, x in leaves)
        return cls(structure, tuple(name or "loss" for name in names), tuple(specs))

    def record(self) -> np.dtype:
        fields = enumerate(self.specs)
        return np.dtype([(f"f{i}", np.dtype(s.dtype), s.shape) for i, s in fields])

    def by_name(self, metrics: Any) -> dict[str, Any]:
        return dict(zip(self.names, jax.tree.leaves(metrics), strict=True))

    def scalars(self, metrics: Any) -> dict[str, np.ndarray]:
        """Of stacked metrics, those with one number for each step, by name."""
        leaves = zip(self.names, self.specs, jax.tree.leaves(metrics), strict=True)
        return {name: leaf for name, spec, leaf in leaves if spec.shape == ()}


class History:
    """Everything measured so far."""

    def __init__(self, layout: Layout, path: Path | None = None, steps: int = 0):
        self._layout = layout
        self._record = layout.record()
        self._chunks: list[np.ndarray] = []
        self._file = None
        if path is not None:
            self._chunks.append(self._read(path, steps))
            self._file = open(path, "ab")  # noqa: SIM115 (closed by close)
            self._file.truncate(steps * self._record.itemsize)

    def add(self, metrics: Any, steps: int) -> None:
        """The stacked metrics of the next steps, of which the first `steps` count."""
        records = np.empty(steps, self._record)
        for index, leaf in enumerate(jax.tree.leaves(metrics)):
            records[f"f{index}"] = np.asarray(leaf)[:steps]
        self._chunks.append(records)
        if self._file is not None:
            self._file.write(records.tobytes())

    def sync(self) -> None:
        """See to it that all of it is on the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def stacked(self) -> Any:
        """One array for each metric, with an entry for each step."""
        records = np.concatenate([np.empty(0, self._record), *self._chunks])
        fields = (np.ascontiguousarray(records[name]) for name in self._names())
        return jax.tree.unflatten(self._layout.structure, list(fields))

    def _names(self) -> Iterator[str]:
        return (f"f{index}" for index in range(len(self._layout.specs)))

    def _read(self, path: Path, steps: int) -> np.ndarray:
        """The first steps of the file."""
        found = path.read_bytes() if path.exists() else b""
        wanted = steps * self._record.itemsize
        if len(found) < wanted:
            raise CheckpointError(
                f"onescan.train.fit: {path} holds {len(found)} bytes, but the {steps} "
                f"steps of the checkpoint to resume from measured {wanted}. It is "
                "damaged; nothing was changed. Train into another checkpoint_dir."
            )
        if wanted == 0:
            return np.empty(steps, self._record)
        return np.frombuffer(found[:wanted], self._record)


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
