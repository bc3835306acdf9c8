"""Checkpoints of a run, by orbax: atomic, and written while the run goes on.

A checkpoint is the arrays of the state after some number of steps, where the run stands
in its data, and a checksum of every array. What is half written when the process dies
does not count as a checkpoint.
"""

from __future__ import annotations

import logging
import warnings
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onescan.errors import CheckpointError
from onescan.train.directory import SAID, STEPS, Directory
from onescan.train.sources import Position

EXTRA = (
    "onescan.train.fit: checkpoint_dir needs orbax. Install it with "
    "`pip install onescan[train]`."
)


class Checkpoints:
    """The checkpoints in a directory, of which the last `keep` stay."""

    def __init__(self, directory: Directory, keep: int) -> None:
        self._orbax = _orbax()
        self._path = directory.path / STEPS
        options = self._orbax.CheckpointManagerOptions(
            max_to_keep=keep, create=True, cleanup_tmp_directories=True
        )
        self._manager = self._orbax.CheckpointManager(self._path, options=options)

    def save(self, arrays: list[Any], position: Position, ended: str | None) -> None:
        """Copy the arrays now, and write them while the caller goes on."""
        if self._manager.latest_step() == position.steps:
            return
        host = {str(i): _on_host(array) for i, array in enumerate(arrays)}
        notes = {
            "position": list(position),
            "ended": ended,
            "checksums": {name: _checksum(array) for name, array in host.items()},
        }
        # orbax stores no empty arrays; their types say everything about them
        full = {name: array for name, array in host.items() if array.size}
        args = self._orbax.args
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of orbax to itself
            self._manager.save(
                position.steps,
                args=args.Composite(
                    state=args.StandardSave(full), notes=args.JsonSave(notes)
                ),
            )

    def busy(self) -> bool:
        """Whether the last one is still being written."""
        return self._manager.is_saving_in_progress()

    def wait(self) -> None:
        self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.close()

    def latest(self) -> int | None:
        return self._manager.latest_step()

    def restore(
        self, arrays: list[jax.Array]
    ) -> tuple[list[jax.Array], Position, str | None]:
        """The last checkpoint, with the types and places of `arrays`."""
        steps = self._manager.latest_step()
        assert steps is not None
        host = {str(i): _on_host(array) for i, array in enumerate(arrays)}
        full = {name: array for name, array in host.items() if array.size}
        args = self._orbax.args
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # where arrays were, which we know
                found = self._manager.restore(
                    steps,
                    args=args.Composite(
                        state=args.StandardRestore(full), notes=args.JsonRestore()
                    ),
                )
            restored = host | {k: np.asarray(v) for k, v in found["state"].items()}
            notes = found["notes"]
            for name, array in restored.items():
                if notes["checksums"][name] != _checksum(array):
                    raise ValueError(f"array {name} is not what was saved")
            position = Position(*notes["position"])
        except Exception as error:
            raise CheckpointError(
                f"{SAID}{self._path.parent}: the checkpoint {self._path / str(steps)} "
                f"cannot be read ({_first_line(error)}). Nothing was changed; move it "
                "away to continue from the one before."
            ) from error
        placed = [_placed(restored[str(i)], array) for i, array in enumerate(arrays)]
        return placed, position, notes["ended"]


def _orbax() -> Any:
    """The package, whose import takes a second; its remarks are for others."""
    try:
        import orbax.checkpoint as orbax
    except ImportError:
        raise ImportError(EXTRA) from None
    logging.getLogger("absl").addFilter(
        lambda record: record.levelno >= logging.ERROR or "orbax" not in record.pathname
    )
    return orbax


def _on_host(array: jax.Array) -> np.ndarray:
    """A copy: the memory of the array itself is about to be given away."""
    if _is_key(array):
        array = jax.random.key_data(array)
    return np.array(array, copy=True)


def _placed(host: np.ndarray, like: jax.Array) -> jax.Array:
    if _is_key(like):
        return jax.random.wrap_key_data(
            jnp.asarray(host), impl=jax.random.key_impl(like)
        )
    owned = jnp.array(host, copy=True)  # which can be given away
    return jax.device_put(owned, like.sharding) if like.committed else owned


def _is_key(array: jax.Array) -> bool:
    return jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
