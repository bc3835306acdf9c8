"""`stack` and `unstack`: between a list of layers and one tree of stacked arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onescan.errors import ScanTypeError, ScanValueError
from onescan.layers.differences import (
    Difference,
    first_difference,
    is_stackable,
)
from onescan.naming import leaf_paths, thing_name, type_name

LONGEST_PERIOD = 16  # of a pattern that an error suggests


def stack(blocks: Iterable[Any], period: int = 1) -> Any:
    """One tree whose arrays have a leading axis of layers, from a list of layers.

    A layer is any pytree: a dict, a NamedTuple, a dataclass, an Equinox module, the
    state of a Flax NNX module. Arrays are stacked, and NumPy arrays stay NumPy
    arrays. Other leaves (Python numbers, strings, functions) have to be the same in
    all layers and are kept once.

    Args:
        blocks: the layers, first to last. They agree in structure, shapes and dtypes.
        period: for layers that repeat in a pattern: layer i has the shape of layer
            ``i % period``. Gives a tuple of `period` stacks, one for each place in
            the pattern, as `scan_layers` takes it.

    >>> import numpy as np
    >>> from onescan.layers import stack, unstack
    >>> stacked = stack([{"w": np.full(2, n), "eps": 1e-5} for n in range(3)])
    >>> print(stacked["w"].shape, stacked["eps"])
    (3, 2) 1e-05
    >>> print(unstack(stacked)[2]["w"])
    [2 2]
    """
    if isinstance(blocks, dict) or hasattr(blocks, "_fields"):
        raise ScanTypeError(
            f"stack: blocks must be a list of layers, but it is {thing_name(blocks)}, "
            "which looks like a single layer. Write stack([layer0, layer1, ...])."
        )
    blocks = list(blocks)
    _check_period("stack", period)
    if len(blocks) < period:
        raise ScanValueError(
            f"stack: {len(blocks)} layers cannot be stacked with a period of {period}. "
            "Give at least one layer for each place in the pattern."
        )
    for place in range(period):
        for layer in range(place + period, len(blocks), period):
            if difference := first_difference(blocks[place], blocks[layer]):
                raise ScanTypeError(_differ(blocks, place, layer, difference))
    stacks = tuple(_stack(blocks[place::period]) for place in range(period))
    return stacks if period > 1 else stacks[0]


def unstack(stacked: Any, period: int = 1) -> list[Any]:
    """The layers of a stack as a list, first to last: the inverse of `stack`."""
    _check_period("unstack", period)
    if period == 1:
        return _unstack("stacked", stacked)
    if type(stacked) not in (tuple, list) or len(stacked) != period:
        raise ScanTypeError(
            f"unstack: with period={period} stacked must be a tuple of {period} "
            f"stacks, but it is {thing_name(stacked)}."
        )
    places = [_unstack(f"stacked[{i}]", stacked[i]) for i in range(period)]
    pattern_groups("unstack", "stacked", [len(layers) for layers in places])
    total = sum(map(len, places))
    return [places[layer % period][layer // period] for layer in range(total)]


def count_layers(caller: str, name: str, stacked: Any) -> int:
    """The length of the leading axis that all arrays share, or an error."""
    leaves = jax.tree.leaves(stacked)
    arrays = [i for i, leaf in enumerate(leaves) if is_stackable(leaf)]
    if not arrays:
        raise ScanValueError(
            f"{caller}: {name} has no arrays, so the number of layers is unknown. "
            "Every array of it has a leading axis of layers: see stack."
        )

    def told(index: int) -> str:
        path, leaf = leaf_paths(name, stacked)[index], leaves[index]
        return f"{path} is {type_name(leaf)}"

    for index in arrays:
        if not leaves[index].shape:
            raise ScanValueError(
                f"{caller}: {told(index)}, with no leading axis of layers. Give it one "
                "entry for each layer: see stack."
            )
        if leaves[index].shape[0] != leaves[arrays[0]].shape[0]:
            raise ScanValueError(
                f"{caller}: {told(index)}, of {leaves[index].shape[0]} layers, and "
                f"{told(arrays[0])}, of {leaves[arrays[0]].shape[0]}. The leading axis "
                "of all arrays is that of the layers: see stack."
            )
    return leaves[arrays[0]].shape[0]


def pattern_groups(caller: str, name: str, counts: Sequence[int]) -> int:
    """The number of whole groups in a pattern whose places have so many layers."""
    groups = counts[-1]
    tail = sum(counts) - groups * len(counts)
    expected = [groups + (place < tail) for place in range(len(counts))]
    if list(counts) != expected:
        raise ScanValueError(
            f"{caller}: the places of the pattern {name} have {_listed(counts)} "
            f"layers, which no sequence of {sum(counts)} layers gives. Stack them "
            f"together: stack(blocks, period={len(counts)})."
        )
    return groups


def _stack(blocks: list[Any]) -> Any:
    def stack_leaves(*leaves: Any) -> Any:
        if not is_stackable(leaves[0]):
            return leaves[0]
        if all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves):
            return np.stack(leaves)
        return jnp.stack(leaves)

    return jax.tree.map(stack_leaves, *blocks)


def _unstack(name: str, stacked: Any) -> list[Any]:
    def layer(index: int) -> Any:
        return jax.tree.map(
            lambda leaf: leaf[index] if is_stackable(leaf) else leaf, stacked
        )

    return [layer(index) for index in range(count_layers("unstack", name, stacked))]


def _check_period(caller: str, period: Any) -> None:
    if not isinstance(period, int) or period < 1:
        raise ScanValueError(
            f"{caller}: period must be an integer >= 1, but it is {period!r}. It is "
            "the number of layers after which their pattern repeats."
        )


def _differ(blocks: list[Any], first: int, layer: int, difference: Difference) -> str:
    path = difference.path or " (the whole layer)"
    message = (
        f"stack: layer {layer} differs from layer {first} at blocks[{layer}]{path}: "
        f"{difference.other}, where layer {first} has {difference.first}."
    )
    if period := _find_period(blocks):
        return (
            f"{message} The layers repeat with a period of {period}: write "
            f"stack(blocks, period={period})."
        )
    return (
        f"{message} The layers of a stack agree in structure, shapes and dtypes; "
        "numbers that differ from layer to layer have to be arrays."
    )


def _find_period(blocks: list[Any]) -> int | None:
    for period in range(2, min(LONGEST_PERIOD, len(blocks) // 2) + 1):
        pairs = zip(blocks, blocks[period:], strict=False)
        if not any(first_difference(a, b) for a, b in pairs):
            return period
    return None


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts[:-1])) + f" and {counts[-1]}"
