"""Pytrees as text, in the user's own containers.

A tree prints the way its author would write it: NamedTuples and registered classes
by name and field, dicts by key, on one line where that fits and indented where it
does not.  What stands in place of a leaf is the caller's choice, so the same layout
shows shapes and values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, GetAttrKey

from onescan.explain.steps import Leaves, Path
from onescan.naming import type_name

CELL = 36  # columns of a value in the table of steps, before it breaks into lines
LEAVES = 6  # of a tree in that table
SMALL = 8  # elements up to which an array is shown by its values


class Container(NamedTuple):
    """One level of a tree: brackets around named or unnamed children."""

    opening: str
    items: list[tuple[str | None, Any]]
    closing: str
    colon: str = "="


def show(tree: Any, leaf: Callable[[Any], str], width: int = 60) -> str:
    """The tree as text: one line of at most `width`, or indented lines."""
    node = _container(tree)
    if node is None:
        return leaf(tree)

    def lines(width: int) -> list[str]:
        return [
            (f"{name}{node.colon}" if name is not None else "")
            + show(child, leaf, width)
            for name, child in node.items
        ]

    flat = node.opening + ", ".join(lines(sys.maxsize)) + node.closing
    if len(flat) <= width or not node.items:
        return flat
    inside = ",\n".join(lines(width - 2)).replace("\n", "\n  ")
    comma, bracket = node.closing[:-1], node.closing[-1]
    return f"{node.opening}\n  {inside}{comma}\n{bracket}"


def cell(tree: Any, width: int = CELL) -> str:
    """The values of a tree for a table: on one line, or one leaf a line, by path."""
    flat = show(tree, value_text, sys.maxsize)
    if len(flat) <= width:
        return flat
    leaves = by_path(tree)
    lines = [f"{path} {text}".strip() for path, text in leaves[:LEAVES]]
    if more := len(leaves[LEAVES:]):
        lines.append(f"and {more} more")
    return "\n".join(lines)


def by_path(tree: Any) -> list[tuple[str, str]]:
    """What each leaf is called, such as ".h[0]", and its value as text."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), value_text(leaf)) for path, leaf in leaves]


def plain(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """The tree as the dicts and lists that JSON knows."""
    node = _container(tree)
    if node is None:
        return leaf(tree)
    if tree is None:
        return None
    if type(tree) is dict:
        return {str(key): plain(child, leaf) for key, child in tree.items()}
    if all(name is None for name, _ in node.items):
        return [plain(child, leaf) for _, child in node.items]
    return {name: plain(child, leaf) for name, child in node.items}


def _container(tree: Any) -> Container | None:
    """The outermost container of a tree, or None for a leaf."""
    if tree is None:
        return Container("None", [], "")
    if jax.tree_util.all_leaves([tree]):
        return None
    pairs, _ = jax.tree_util.tree_flatten_with_path(
        tree, is_leaf=lambda node: node is not tree
    )
    items = [(_name(path[0]), child) for path, child in pairs]
    if type(tree) is tuple:
        return Container("(", items, ",)" if len(items) == 1 else ")")
    if type(tree) is list:
        return Container("[", items, "]")
    if type(tree) is dict:
        return Container("{", items, "}", ": ")
    if isinstance(tree, Leaves):
        return Container("(", items, ")")
    return Container(f"{type(tree).__name__}(", items, ")")


def _name(key: Any) -> str | None:
    if isinstance(key, DictKey):
        return repr(key.key)
    return key.name if isinstance(key, GetAttrKey | Path) else None


def value_text(leaf: Any) -> str:
    """The values of a small array, or the shape and range of a large one."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return type_name(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        if leaf.size > 1:
            return type_name(leaf)
        return f"{leaf.dtype}({value_text(jax.random.key_data(leaf))})"
    array = np.asarray(leaf)
    if array.size <= SMALL:
        return _numbers(array)
    return f"{type_name(array)} {_range(array)}"


def json_value(leaf: Any) -> Any:
    """A small array of numbers as numbers, anything else as text."""
    kinds = (np.bool_, np.integer, np.floating)
    if leaf.size <= SMALL and any(jnp.issubdtype(leaf.dtype, k) for k in kinds):
        return np.asarray(leaf).tolist()
    return value_text(leaf)


def _numbers(array: np.ndarray) -> str:
    if array.ndim == 0:
        return _number(array)
    text = np.array2string(array, separator=", ", formatter={"all": _number})
    return " ".join(text.split())


def _number(value: Any, digits: int = 5) -> str:
    number = np.asarray(value).item()  # bfloat16 too becomes a Python float
    if not isinstance(number, float):
        return f"{number:.{digits}g}" if isinstance(number, complex) else str(number)
    text = f"{number:.{digits}g}"
    return text if set(text) & set(".en") else f"{text}.0"  # 1.0, not 1


def _range(array: np.ndarray) -> str:
    if array.dtype == bool:
        return f"{int(array.sum())} of {array.size} true"
    if jnp.issubdtype(array.dtype, np.complexfloating):
        return f"magnitude {_ends(np.abs(array))}"
    return _ends(array)


def _ends(array: np.ndarray) -> str:
    finite = np.isfinite(array)
    if not finite.all():
        return f"{int((~finite).sum())} of {array.size} not finite"
    low, high = _number(array.min(), 3), _number(array.max(), 3)
    if low == high:
        return f"all {_number(array.min())}"
    mean = _number(np.mean(array, dtype=np.float64), 3)
    return f"{low} to {high}, mean {mean}"
