"""The arguments of `fit` and `batches`: what they may be, and what they come to."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from onescan.errors import ScanTypeError, ScanValueError
from onescan.naming import leaf_paths
from onescan.train.iterated import Iterated
from onescan.train.sources import Batches, NoBatches, Source, placed


def batches(data: Any, size: int, *, shuffle: bool = True) -> Batches:
    """Batches of `size` examples, in a new order in every epoch.

    Args:
        data: arrays in any containers, with one entry per example along their leading
            axis. Arrays of JAX stay on their device, where each step picks its
            examples; arrays of NumPy stay on the host, and the batches of a chunk go
            to the device while the chunk before is computed.
        size: examples in a batch. Those that are left over at the end of an epoch
            are not used in it; when shuffled, they are others each time.
        shuffle: whether the order changes. It follows from the `seed` of `fit`, and
            is the same for both kinds of arrays.

    >>> import jax.numpy as jnp
    >>> from onescan import train
    >>> def step(total, batch):
    ...     return total + batch.sum(), batch
    >>> run = train.fit(step, 0, train.batches(jnp.arange(6), 2), epochs=2)
    >>> print(run.state, sorted(run.metrics[:3].ravel().tolist()))
    30 [0, 1, 2, 3, 4, 5]
    """
    size = _integer("onescan.train.batches", "size", size, least=1)
    examples = _leading("onescan.train.batches: data", "data", data)
    if size > examples:
        raise ScanValueError(
            f"onescan.train.batches: a batch of size={size} needs as many examples, "
            f"but data has {examples}."
        )
    return Batches(data, size, shuffle)


def source_of(given: Any, steps: int | None, epochs: int | None, seed: int) -> Source:
    """Where the batches come from, and how many there will be."""
    said = "onescan.train.fit"
    if steps is not None and epochs is not None:
        raise ScanValueError(f"{said}: give steps or epochs, not both.")
    if steps is not None:
        steps = _integer(said, "steps", steps, least=0)
    if epochs is not None:
        epochs = _integer(said, "epochs", epochs, least=0)
    seed = _integer(said, "seed", seed, least=0)
    if given is None:
        if steps is None:
            raise ScanValueError(
                f"{said}: without batches, the number of steps is unknown. "
                "Give steps=..., or batches."
            )
        return NoBatches(steps)
    if isinstance(given, Batches):
        return _arrays(given, steps, epochs, seed)
    if callable(given) and epochs is None and steps is None:
        raise ScanValueError(
            f"{said}: batches is a function of the epoch, so it never ends. Give "
            "steps=... or epochs=..."
        )
    if callable(given) or not _all_arrays(given):
        return _iterated(given, steps, epochs)
    _leading(f"{said}: batches", "batches", given)
    return _arrays(Batches(given, None), steps, epochs, seed)


def _arrays(given: Batches, steps: int | None, epochs: int | None, seed: int) -> Source:
    if steps is None:
        steps = (1 if epochs is None else epochs) * given.steps_per_epoch()
    return placed(given, steps, seed)


def _iterated(given: Any, steps: int | None, epochs: int | None) -> Source:
    if not callable(given) and not isinstance(given, Iterable):
        raise ScanTypeError(
            "onescan.train.fit: batches must be arrays with one batch for each step, "
            "onescan.train.batches(data, size), an iterable of batches, a function "
            f"from an epoch to one, or None, but it is {given!r}."
        )
    if not callable(given) and iter(given) is given and (epochs or 1) > 1:
        raise ScanValueError(
            f"onescan.train.fit: batches is an iterator, which can be read once, not "
            f"for epochs={epochs}. Give a function from the number of an epoch to "
            "its batches."
        )
    if epochs is None and steps is None:
        epochs = 1
    return Iterated(given, steps, epochs)


def _all_arrays(tree: Any) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what can be iterated is no leaf to JAX
            leaves = jax.tree.leaves(tree)
    except Exception:
        return False
    return bool(leaves) and all(isinstance(x, jax.Array | np.ndarray) for x in leaves)


def _leading(said: str, root: str, tree: Any) -> int:
    """The size that all leading axes have."""
    leaves = jax.tree.leaves(tree)
    paths = leaf_paths(root, tree)
    if not leaves:
        raise ScanValueError(f"{said} has no arrays.")
    sizes: dict[str, int] = {}
    for path, leaf in zip(paths, leaves, strict=True):
        if not isinstance(leaf, jax.Array | np.ndarray):
            raise ScanTypeError(
                f"{said} must hold arrays, but {path} is {leaf!r}, of type "
                f"{type(leaf).__name__}."
            )
        if leaf.ndim == 0:
            raise ScanValueError(f"{said}: {path} is a number, with no leading axis.")
        sizes[path] = leaf.shape[0]
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{path} has {size}" for path, size in sizes.items())
        hint = " To go through a list of batches, give iter(batches)."
        raise ScanValueError(
            f"{said}: the leading axes must be the same, but {told}."
            f"{hint if root == 'batches' else ''}"
        )
    return next(iter(sizes.values()))


def _integer(said: str, name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ScanTypeError(
            f"{said}: {name} must be an integer, but it is {value!r}."
        ) from None
    if number < least:
        raise ScanValueError(
            f"{said}: {name} must be at least {least}, but it is {number}."
        )
    return number


def chunk_of(chunk: Any) -> int | None:
    """The number of steps of a chunk, None for "auto"."""
    if isinstance(chunk, str):
        if chunk == "auto":
            return None
        raise ScanValueError(
            f'onescan.train.fit: chunk must be "auto" or a number of steps, but it is '
            f"{chunk!r}."
        )
    return _integer("onescan.train.fit", "chunk", chunk, least=1)


def keep_of(keep: Any) -> int:
    """How many checkpoints stay."""
    return _integer("onescan.train.fit", "keep", keep, least=1)
