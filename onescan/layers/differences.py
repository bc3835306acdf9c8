"""Where two layers first differ, told as the user would write it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax.tree_util import keystr, tree_flatten_with_path

from onescan.naming import thing_name, type_name


class Difference(NamedTuple):
    """A place, such as ``['mlp']['w']``, and what each of two layers has there."""

    path: str
    first: str
    other: str


def is_stackable(leaf: Any) -> bool:
    """Whether a leaf is an array; Python numbers, strings and functions are not."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def first_difference(first: Any, other: Any, path: str = "") -> Difference | None:
    """The first leaf or container in which two layers differ, or None.

    >>> import numpy as np
    >>> first_difference({"w": np.zeros(2)}, {"w": np.zeros(3)})
    Difference(path="['w']", first='float64[2]', other='float64[3]')
    >>> first_difference([1, 2], [1, 2])
    """
    parts, other_parts = _parts(first), _parts(other)
    if parts is None and other_parts is None:
        return _leaf_difference(first, other, path)
    if parts is None or other_parts is None or type(first) is not type(other):
        return Difference(path, _told(first), _told(other))
    for key in parts | other_parts:
        if key not in other_parts:
            return Difference(path + key, _told(parts[key]), "nothing")
        if key not in parts:
            return Difference(path + key, "nothing", _told(other_parts[key]))
        if found := first_difference(parts[key], other_parts[key], path + key):
            return found
    if jax.tree.structure(first) != jax.tree.structure(other):
        told = thing_name(first)
        return Difference(path, told, f"{told} with other static fields")
    return None


def _leaf_difference(first: Any, other: Any, path: str) -> Difference | None:
    arrays = is_stackable(first), is_stackable(other)
    if all(arrays):
        same = first.shape == other.shape and first.dtype == other.dtype
    else:
        same = not any(arrays) and type(first) is type(other) and first == other
    return None if same else Difference(path, _told(first), _told(other))


def _told(thing: Any) -> str:
    if is_stackable(thing):
        return type_name(thing)
    return repr(thing) if _parts(thing) is None else thing_name(thing)


def _parts(node: Any) -> dict[str, Any] | None:
    """The children of a container by what the user writes to reach them."""
    if jax.tree_util.all_leaves([node]):
        return None
    parts, _ = tree_flatten_with_path(node, is_leaf=lambda child: child is not node)
    return {keystr(path): child for path, child in parts}
